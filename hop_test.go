package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// hopCanonical are fields as net/http's server hands them over.
func hopCanonical(headers ...[2]string) map[string][]string {
	m := make(map[string][]string)
	for _, h := range headers {
		name := textproto.CanonicalMIMEHeaderKey(h[0])
		m[name] = append(m[name], h[1])
	}
	return m
}

// hopLower are fields as gRPC's metadata has them.
func hopLower(headers ...[2]string) map[string][]string {
	m := make(map[string][]string)
	for _, h := range headers {
		name := strings.ToLower(h[0])
		m[name] = append(m[name], h[1])
	}
	return m
}

// hopFields are fields in the form in which Append writes them.
func hopFields(fs []stint.Field) map[string][]string {
	m := make(map[string][]string)
	for _, f := range fs {
		m[f.Name] = append(m[f.Name], f.Value)
	}
	return m
}

func hopGate(t testing.TB, o stint.GateOptions) *stint.Gate {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	g, err := stint.NewGate("s", &o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// hopAdmit lets a request with these fields into a Gate and returns the time
// that its handler gets, or false if the Gate refused for lack of time.
func hopAdmit(t testing.TB, g *stint.Gate, fields map[string][]string) (time.Duration, bool) {
	t.Helper()
	now := time.Now()
	a := new(stint.Admission)
	err := g.Admit(context.Background(), stint.ParseHop(fields), a)
	if err != nil {
		var refused *stint.Error
		if !errors.As(err, &refused) || refused.Reason != stint.NoTime {
			t.Fatalf("refused with %v, want no_time", err)
		}
		return 0, false
	}
	defer a.Finish(stint.Outcome{Kind: stint.OK})
	d, ok := a.Context().Deadline()
	if !ok {
		t.Fatal("the handler's context has no deadline")
	}
	if !d.Equal(a.Deadline()) {
		t.Fatalf("without a reserve, the context ends at %v and the request at %v", d, a.Deadline())
	}
	return d.Sub(now), true
}

// What a naive reader turns into a negative, a tiny or an endless time.
func TestParseHopHostileValues(t *testing.T) {
	const deadline = "X-Deadline-Ms"
	tooLong := time.Duration(-2) // for a time beyond every Gate's cap
	tests := []struct {
		name, value string
		remaining   time.Duration
		ignored     int
	}{
		{deadline, "250", 250 * time.Millisecond, 0},
		{deadline, "0250", 250 * time.Millisecond, 0},
		{deadline, "0", -1, 0},
		{deadline, "00", -1, 0},
		{deadline, strings.Repeat("0", 100), -1, 0},
		{deadline, strings.Repeat("0", 100) + "7", 7 * time.Millisecond, 0},
		{deadline, "", 0, 1},
		{deadline, " \t", 0, 1},
		{deadline, "250ms", 0, 1},
		{deadline, "250.0", 0, 1},
		{deadline, "2.5e2", 0, 1},
		{deadline, "0x10", 0, 1},
		{deadline, "1_000", 0, 1},
		{deadline, "٢٥٠", 0, 1},
		{deadline, "+250", 0, 1},
		{deadline, "-1", 0, 1},
		{deadline, "-0", 0, 1},
		{deadline, "25 0", 0, 1},
		{deadline, "250\x00", 0, 1},
		{deadline, "\n250", 0, 1},
		{deadline, "\u00a0250", 0, 1}, // a space to Unicode, not to HTTP
		{deadline, "NaN", 0, 1},
		{deadline, "-Inf", 0, 1},
		{deadline, "1e308", 0, 1},
		{deadline, "250,100", 100 * time.Millisecond, 0},
		{deadline, "250, 100\t", 100 * time.Millisecond, 0},
		{deadline, "250,", 250 * time.Millisecond, 1},
		{deadline, ",,", 0, 3},
		{deadline, "250,-1,x", 250 * time.Millisecond, 2},
		{deadline, "9223372036854", tooLong, 0},
		{deadline, "9223372036855", tooLong, 0},
		{deadline, "18446744073710", tooLong, 0}, // wraps to 448 us
		{deadline, "9223372036854775807", tooLong, 0},
		{deadline, "9223372036854775808", tooLong, 0},
		{deadline, "18446744073709551617", tooLong, 0}, // wraps to 1
		{deadline, strings.Repeat("9", 1000), tooLong, 0},
		{deadline, "1786000000000", tooLong, 0}, // somebody's clock
		{"Grpc-Timeout", "99999999H", tooLong, 0},
		{"Grpc-Timeout", "99999999n", 99999999 * time.Nanosecond, 0},
		{"Grpc-Timeout", "999999n", -1, 0},
		{"Grpc-Timeout", "1000000n", time.Millisecond, 0},
		{"Grpc-Timeout", "0S", -1, 0},
		{"Grpc-Timeout", "999999999H", 0, 1},
		{"Grpc-Timeout", "18446744074S", 0, 1},
		{"Grpc-Timeout", "", 0, 1},
		{"Grpc-Timeout", "1M", time.Minute, 0},
		{"Connect-Timeout-Ms", "9999999999", tooLong, 0},
		{"Connect-Timeout-Ms", "10000000000", 0, 1},
		{"X-Envoy-Expected-Rq-Timeout-Ms", "0", 0, 0},
		{"X-Envoy-Expected-Rq-Timeout-Ms", "0,15", 15 * time.Millisecond, 0},
		{"X-Timeout-Ms", "0", -1, 0},
	}
	for _, c := range tests {
		h := stint.ParseHop(hopCanonical([2]string{c.name, c.value}))
		if c.remaining == tooLong {
			if h.Remaining < 24*time.Hour {
				t.Errorf("%s: %q: %v left, want more than any cap", c.name, c.value, h.Remaining)
			}
		} else if h.Remaining != c.remaining {
			t.Errorf("%s: %q: %v left, want %v", c.name, c.value, h.Remaining, c.remaining)
		}
		if h.Ignored != c.ignored {
			t.Errorf("%s: %q: %d values ignored, want %d", c.name, c.value, h.Ignored, c.ignored)
		}
	}
}

// hopLimit is the time that a Hop allows, so that two can be compared.
func hopLimit(h stint.Hop) time.Duration {
	switch {
	case h.Remaining < 0:
		return 0
	case h.Remaining == 0:
		return math.MaxInt64
	}
	return h.Remaining
}

func TestParseHopNothingEnlarges(t *testing.T) {
	names := []string{"X-Deadline-Ms", "X-Timeout-Ms", "Connect-Timeout-Ms", "X-Envoy-Expected-Rq-Timeout-Ms", "Grpc-Timeout"}
	value := func(name string, ms int) string {
		if name == "Grpc-Timeout" {
			return fmt.Sprintf("%dm", ms)
		}
		return fmt.Sprint(ms)
	}
	for _, a := range names {
		for _, b := range names {
			for _, order := range [][2]int{{100, 900}, {900, 100}} {
				h := stint.ParseHop(hopCanonical([2]string{a, value(a, order[0])}, [2]string{b, value(b, order[1])}))
				if h.Remaining != 100*time.Millisecond || h.Ignored != 0 {
					t.Errorf("%s and %s as %v: %v left, %d ignored; want the smaller one and none", a, b, order, h.Remaining, h.Ignored)
				}
			}
		}
	}
}

// A map can hold a name in both spellings: a header written past Header.Set
// beside one of the server's own. "All values of all names" are these as well.
func TestParseHopNothingEnlargesInBothSpellings(t *testing.T) {
	for _, ms := range [][2]string{{"100", "900"}, {"900", "100"}} {
		h := stint.ParseHop(map[string][]string{"X-Deadline-Ms": {ms[0]}, "x-deadline-ms": {ms[1]}})
		if h.Remaining != 100*time.Millisecond {
			t.Errorf("%v: %v left, want the smaller one", ms, h.Remaining)
		}
	}
	h := stint.ParseHop(map[string][]string{"X-Deadline-Ms": {}, "x-deadline-ms": {"100"}})
	if h.Remaining != 100*time.Millisecond {
		t.Errorf("beside a name without values: %v left, want 100ms", h.Remaining)
	}
	h = stint.ParseHop(map[string][]string{"X-Retry-Owner": {"a"}, "x-retry-owner": {"b"}})
	if h.Owner != "" || h.Ignored != 2 {
		t.Errorf("two owners: %q, %d ignored; want none, 2", h.Owner, h.Ignored)
	}
}

func TestParseHopOtherFields(t *testing.T) {
	long := func(n int) string { return strings.Repeat("k", n) }
	tests := []struct {
		name   string
		values []string
		want   stint.Hop
	}{
		{"X-Attempt", []string{"1"}, stint.Hop{Attempt: 1}},
		{"X-Attempt", []string{" 2\t"}, stint.Hop{Attempt: 2}},
		{"X-Attempt", []string{"0003"}, stint.Hop{Attempt: 3}},
		{"X-Attempt", []string{"9999"}, stint.Hop{Attempt: 1000}}, // a number for people: no more is worth telling apart
		{"X-Attempt", []string{"0"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"-1"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"+1"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"1.0"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"12345"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"18446744073709551617"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"٢"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"2,3"}, stint.Hop{Ignored: 1}},
		{"X-Attempt", []string{"2", "3"}, stint.Hop{Ignored: 2}},
		{"X-Attempt", []string{"2", "2"}, stint.Hop{Ignored: 2}},

		{"X-Retry-Owner", []string{"checkout"}, stint.Hop{Owner: "checkout"}},
		{"X-Retry-Owner", []string{" checkout "}, stint.Hop{Owner: "checkout"}},
		{"X-Retry-Owner", []string{"A-b_c.9~!#$%&'*+^`|"}, stint.Hop{Owner: "A-b_c.9~!#$%&'*+^`|"}},
		{"X-Retry-Owner", []string{long(64)}, stint.Hop{Owner: long(64)}},
		{"X-Retry-Owner", []string{long(65)}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"a b"}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"a,b"}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{`"a"`}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"a/b"}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"a\x00"}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"a\r\nX-Criticality: critical-plus"}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"zürich"}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"a\xff"}, stint.Hop{Ignored: 1}},
		{"X-Retry-Owner", []string{"a", "b"}, stint.Hop{Ignored: 2}},
		{"X-Retry-Owner", []string{"a", ""}, stint.Hop{Ignored: 2}},

		{"X-Criticality", []string{"sheddable"}, stint.Hop{Class: stint.Sheddable}},
		{"X-Criticality", []string{"sheddable-plus"}, stint.Hop{Class: stint.SheddablePlus}},
		{"X-Criticality", []string{"critical"}, stint.Hop{Class: stint.Critical}},
		{"X-Criticality", []string{" Critical-Plus "}, stint.Hop{Class: stint.CriticalPlus}},
		{"X-Criticality", []string{"critical_plus"}, stint.Hop{Ignored: 1}},
		{"X-Criticality", []string{"4"}, stint.Hop{Ignored: 1}},
		{"X-Criticality", []string{"invalid"}, stint.Hop{Ignored: 1}},
		{"X-Criticality", []string{"critical, sheddable"}, stint.Hop{Ignored: 1}},
		{"X-Criticality", []string{"critical\x00"}, stint.Hop{Ignored: 1}},
		{"X-Criticality", []string{"ſheddable"}, stint.Hop{Ignored: 1}}, // equal under Unicode's case folding only
		{"X-Criticality", []string{"critical", "sheddable"}, stint.Hop{Ignored: 2}},

		{"Idempotency-Key", []string{"8e03978e-40d5-43dd"}, stint.Hop{Key: "8e03978e-40d5-43dd"}},
		{"Idempotency-Key", []string{`"8e03978e-40d5-43dd"`}, stint.Hop{Key: "8e03978e-40d5-43dd"}},
		{"Idempotency-Key", []string{` "k" `}, stint.Hop{Key: "k"}},
		{"Idempotency-Key", []string{long(255)}, stint.Hop{Key: long(255)}},
		{"Idempotency-Key", []string{`"` + long(255) + `"`}, stint.Hop{Key: long(255)}},
		{"Idempotency-Key", []string{long(256)}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{`""`}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{`"`}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{`"k`}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{`k"k`}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{`"a" , "b"`}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{"a b"}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{"a\x7f"}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{"é"}, stint.Hop{Ignored: 1}},
		{"Idempotency-Key", []string{"k", "k"}, stint.Hop{Ignored: 2}},

		{"X-Request-Id", []string{"7f/a=b:c"}, stint.Hop{RequestID: "7f/a=b:c"}},
		{"X-Request-Id", []string{long(128)}, stint.Hop{RequestID: long(128)}},
		{"X-Request-Id", []string{long(129)}, stint.Hop{Ignored: 1}},
		{"X-Request-Id", []string{"a b"}, stint.Hop{Ignored: 1}},
		{"X-Request-Id", []string{"a\x1b[31m"}, stint.Hop{Ignored: 1}},
		{"X-Request-Id", []string{"a", "b", "c"}, stint.Hop{Ignored: 3}},

		{"X-Not-Started", []string{"full"}, stint.Hop{}}, // of the other direction
		{"X-Retry", []string{"never"}, stint.Hop{}},
	}
	for _, c := range tests {
		for spelling, name := range map[string]string{"canonical": c.name, "lower": strings.ToLower(c.name)} {
			if h := stint.ParseHop(map[string][]string{name: c.values}); h != c.want {
				t.Errorf("%s, %s: %q: %+v, want %+v", spelling, c.name, c.values, h, c.want)
			}
		}
	}
	if h := stint.ParseHop(nil); h != (stint.Hop{}) {
		t.Errorf("no fields: %+v", h)
	}
}

// An empty value is none of "1 to 64 characters": it is malformed, as it is for
// a deadline, and a reader who wonders why an owner is missing finds it counted.
func TestParseHopCountsEmptyValues(t *testing.T) {
	for _, name := range []string{"X-Attempt", "X-Retry-Owner", "X-Criticality", "Idempotency-Key", "X-Request-Id"} {
		for _, v := range []string{"", " \t"} {
			if h := stint.ParseHop(hopCanonical([2]string{name, v})); h != (stint.Hop{Ignored: 1}) {
				t.Errorf("%s: %q: %+v, want nothing but 1 ignored", name, v, h)
			}
		}
	}
}

func TestParseHopBadFieldsLeaveTheGoodOnes(t *testing.T) {
	h := stint.ParseHop(hopCanonical(
		[2]string{"X-Deadline-Ms", "x"}, [2]string{"X-Timeout-Ms", "70"}, [2]string{"X-Attempt", "no"},
		[2]string{"X-Retry-Owner", "a"}, [2]string{"X-Criticality", "?"}, [2]string{"Idempotency-Key", "k"}, [2]string{"X-Request-Id", "r r"}))
	want := stint.Hop{Remaining: 70 * time.Millisecond, Owner: "a", Key: "k", Ignored: 4}
	if h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
}

func TestHopAppend(t *testing.T) {
	day := "86400000"
	tests := []struct {
		hop  stint.Hop
		want string
	}{
		{stint.Hop{}, ""},
		{stint.Hop{Remaining: -1}, ""},
		{stint.Hop{Remaining: 1}, ""},
		{stint.Hop{Remaining: 400 * time.Microsecond}, ""},
		{stint.Hop{Remaining: time.Millisecond - 1}, ""},
		{stint.Hop{Remaining: time.Millisecond}, "X-Deadline-Ms=1"},
		{stint.Hop{Remaining: 2*time.Millisecond - 1}, "X-Deadline-Ms=1"},
		{stint.Hop{Remaining: 9 * time.Millisecond}, "X-Deadline-Ms=9"},
		{stint.Hop{Remaining: 10 * time.Millisecond}, "X-Deadline-Ms=10"},
		{stint.Hop{Remaining: 100 * time.Millisecond}, "X-Deadline-Ms=100"},
		{stint.Hop{Remaining: 1001 * time.Millisecond}, "X-Deadline-Ms=1001"},
		{stint.Hop{Remaining: 9999 * time.Millisecond}, "X-Deadline-Ms=9999"},
		{stint.Hop{Remaining: 10 * time.Second}, "X-Deadline-Ms=10000"},
		{stint.Hop{Remaining: 24 * time.Hour}, "X-Deadline-Ms=" + day},
		{stint.Hop{Remaining: 24*time.Hour + time.Millisecond}, "X-Deadline-Ms=" + day},
		{stint.Hop{Remaining: math.MaxInt64}, "X-Deadline-Ms=" + day},
		{stint.Hop{Attempt: 1}, ""},
		{stint.Hop{Attempt: 2}, "X-Attempt=2"},
		{stint.Hop{Class: stint.SheddablePlus}, "X-Criticality=sheddable-plus"},
		{stint.Hop{Ignored: 3}, ""},
		{stint.Hop{Remaining: time.Second, Attempt: 2, Owner: "o", Class: stint.Critical, Key: "k", RequestID: "r"},
			"X-Deadline-Ms=1000 X-Attempt=2 X-Retry-Owner=o X-Criticality=critical Idempotency-Key=k X-Request-Id=r"},
	}
	for _, c := range tests {
		var got []string
		for _, f := range c.hop.Append(nil) {
			got = append(got, f.Name+"="+f.Value)
			if f.Name != textproto.CanonicalMIMEHeaderKey(f.Name) {
				t.Errorf("%s is not in the form in which http.Header has it", f.Name)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v:\n%s, want\n%s", c.hop, s, c.want)
		}
	}
	before := []stint.Field{{Name: "A", Value: "b"}}
	if fs := (stint.Hop{Attempt: 2}).Append(before); len(fs) != 2 || fs[0] != before[0] {
		t.Errorf("Append to %v gave %v", before, fs)
	}
}

// What one side writes, the other reads: floored to the millisecond, at most a
// day, and everything else as it was.
func TestHopRoundTrip(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 0))
	text := func(alphabet string, most int) string {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	var visible strings.Builder
	for c := byte('!'); c <= '~'; c++ {
		if c != '"' { // which a key must not have
			visible.WriteByte(c)
		}
	}
	for i := range 20_000 {
		h := stint.Hop{
			Remaining: time.Duration(r.Int64N(1 << (1 + r.IntN(62)))),
			Attempt:   r.IntN(1001),
			Owner:     text("abcXYZ019!#$%&'*+-.^_`|~", 64),
			Class:     stint.Class(r.IntN(int(stint.CriticalPlus) + 1)),
			Key:       text(visible.String(), 255),
			RequestID: text(visible.String(), 128),
		}
		fields := h.Append(nil)
		for _, f := range fields {
			if f.Name == "X-Deadline-Ms" && (f.Value[0] == '0' || len(f.Value) > 8) {
				t.Fatalf("%v was written as %q", h.Remaining, f.Value)
			}
		}
		want := h
		want.Remaining = min(h.Remaining.Truncate(time.Millisecond), 24*time.Hour)
		if h.Attempt == 1 {
			want.Attempt = 0 // absent means 1
		}
		if got := stint.ParseHop(hopFields(fields)); got != want {
			t.Fatalf("seed %d, hop %d: %+v was read as\n%+v, want\n%+v", seed, i, h, got, want)
		}
	}
}

func TestHopFromContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		if h := stint.HopFromContext(ctx); h != (stint.Hop{}) {
			t.Errorf("outside of everything: %+v", h)
		}
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if h := stint.HopFromContext(bounded); h != (stint.Hop{Remaining: time.Second}) {
			t.Errorf("under a deadline: %+v", h)
		}

		g := hopGate(t, stint.GateOptions{Trust: stint.TrustPeers, Reserve: 10 * time.Millisecond})
		in := stint.Hop{Remaining: 500 * time.Millisecond, Attempt: 2, Owner: "o", Class: stint.Sheddable, Key: "k", RequestID: "r"}
		a := new(stint.Admission)
		if err := g.Admit(ctx, in, a); err != nil {
			t.Fatal(err)
		}
		defer a.Finish(stint.Outcome{Kind: stint.OK})
		time.Sleep(100 * time.Millisecond)
		want := in
		want.Remaining = 390 * time.Millisecond // less the reserve
		if h := stint.HopFromContext(a.Context()); h != want {
			t.Errorf("under a Gate: %+v, want %+v", h, want)
		}

		c, err := stint.NewCaller("d", stint.Policy{Timeout: 200 * time.Millisecond}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Do(a.Context(), stint.Op{Key: "own", Class: stint.CriticalPlus}, func(ctx context.Context) error {
			// An attempt's number is for the wire of that attempt only, and the
			// key is that of the call, not of the request being served.
			want := stint.Hop{Remaining: 200 * time.Millisecond, Owner: "o", Class: stint.Sheddable, Key: "own", RequestID: "r"}
			if h := stint.HopFromContext(ctx); h != want {
				t.Errorf("under a Caller: %+v, want %+v", h, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)
		if h := stint.HopFromContext(a.Context()); h.Remaining != -1 {
			t.Errorf("after the deadline: %v left, want -1: a limit that has passed", h.Remaining)
		}
	})
}

// hopWire are the names that ParseHop knows.
var hopWire = []string{"X-Deadline-Ms", "X-Timeout-Ms", "Grpc-Timeout", "Connect-Timeout-Ms", "X-Envoy-Expected-Rq-Timeout-Ms",
	"X-Request-Deadline", "X-Attempt", "X-Retry-Owner", "X-Criticality", "Idempotency-Key", "X-Request-Id", "X-Not-Started", "X-Retry"}

func FuzzParseHop(f *testing.F) {
	index := func(name string) (uint8, bool) {
		for i, n := range hopWire {
			if strings.EqualFold(n, name) {
				return uint8(i), true
			}
		}
		return 0, false
	}
	for _, v := range readVectors(f, "deadlines.json").Vectors {
		var names [3]uint8
		var values [3]string
		for i, h := range v.Headers {
			if n, ok := index(h[0]); ok && i < len(names) {
				names[i], values[i] = n, h[1]
			}
		}
		f.Add(names[0], values[0], names[1], values[1], names[2], values[2], false)
	}
	f.Add(uint8(6), "2", uint8(7), "checkout", uint8(8), "critical", true)
	f.Add(uint8(9), `"k"`, uint8(9), "k", uint8(10), "r", false)

	gates := []*stint.Gate{
		hopGate(f, stint.GateOptions{Limit: stint.NoLimit}),
		hopGate(f, stint.GateOptions{Limit: stint.NoLimit, Trust: stint.TrustPeers, Reserve: stint.NoReserve}),
	}
	f.Fuzz(func(t *testing.T, n0 uint8, v0 string, n1 uint8, v1 string, n2 uint8, v2 string, lower bool) {
		spell := hopCanonical
		if lower {
			spell = hopLower
		}
		name := func(n uint8) string { return hopWire[int(n)%len(hopWire)] }
		some := stint.ParseHop(spell([2]string{name(n0), v0}, [2]string{name(n1), v1}))
		h := stint.ParseHop(spell([2]string{name(n0), v0}, [2]string{name(n1), v1}, [2]string{name(n2), v2}))
		if h.Remaining < -1 || h.Remaining > 0 && h.Remaining < time.Millisecond {
			t.Fatalf("%v left: neither none, nor passed, nor something that can be told on", h.Remaining)
		}
		if hopLimit(h) > hopLimit(some) {
			t.Fatalf("%s: %q enlarged %v to %v", name(n2), v2, some.Remaining, h.Remaining)
		}
		if h.Ignored < 0 || h.Attempt < 0 || h.Class > stint.CriticalPlus {
			t.Fatalf("%+v", h)
		}

		// What was accepted can be passed on, and is read there as it was here.
		want := h
		want.Remaining, want.Ignored = min(max(h.Remaining, 0).Truncate(time.Millisecond), 24*time.Hour), 0
		want.Until, want.Anomalies = time.Time{}, 0
		if h.Attempt == 1 {
			want.Attempt = 0
		}
		if got := stint.ParseHop(hopFields(h.Append(nil))); got != want {
			t.Fatalf("%+v was read as %+v on the next hop", h, got)
		}

		for _, g := range gates {
			a := new(stint.Admission)
			err := g.Admit(context.Background(), h, a)
			now := time.Now()
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) || h.Remaining >= 0 {
					t.Fatalf("%v left was refused: %v", h.Remaining, err)
				}
				continue
			}
			d, ok := a.Context().Deadline()
			switch most := now.Add(30 * time.Second); {
			case !ok:
				t.Fatal("unbounded work")
			case d.After(most) || a.Deadline().After(most):
				t.Fatalf("enlarged beyond the Gate's cap: %v", d.Sub(now))
			case h.Remaining > 0 && a.Deadline().After(now.Add(h.Remaining)):
				t.Fatalf("enlarged from %v to %v", h.Remaining, a.Deadline().Sub(now))
			case d.After(a.Deadline()):
				t.Fatal("the work may go on after the request's deadline")
			}
			a.Finish(stint.Outcome{Kind: stint.OK})
			if a.Context().Err() == nil {
				t.Fatal("the work's context outlived the request")
			}
		}
	})
}
