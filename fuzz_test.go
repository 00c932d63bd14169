package stint_test

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// fuzzSeeds gives every line that a file has under one of the names.
func fuzzSeeds(f *testing.F, file string, add func(name, line string)) {
	for _, v := range readVectors(f, file).Vectors {
		for _, h := range v.Headers {
			add(h[0], h[1])
		}
		for _, line := range v.Values {
			add("", line)
		}
	}
}

// wireModel reads a time limit as docs/wire.md says it, with another's tools:
// big numbers and regular expressions.
type wireModel struct {
	form       *regexp.Regexp // of a member: digits and perhaps a unit
	zeroIsNone bool
}

var (
	modelMillis  = wireModel{form: regexp.MustCompile(`^([0-9]+)()$`)}
	modelConnect = wireModel{form: regexp.MustCompile(`^([0-9]{1,10})()$`)}
	modelEnvoy   = wireModel{form: regexp.MustCompile(`^([0-9]+)()$`), zeroIsNone: true}
	modelGRPC    = wireModel{form: regexp.MustCompile(`^([0-9]{1,8})([HMSmun])$`)}

	modelUnits = map[string]time.Duration{"": time.Millisecond, "H": time.Hour, "M": time.Minute, "S": time.Second,
		"m": time.Millisecond, "u": time.Microsecond, "n": time.Nanosecond}
)

func (m wireModel) read(lines ...string) (want stint.Hop) {
	var least, most *big.Int
	for _, member := range strings.Split(strings.Join(lines, ","), ",") {
		parts := m.form.FindStringSubmatch(strings.Trim(member, " \t"))
		if parts == nil {
			want.Ignored++
			continue
		}
		n, _ := new(big.Int).SetString(parts[1], 10)
		if n.Sign() == 0 && m.zeroIsNone {
			continue
		}
		n.Mul(n, big.NewInt(int64(modelUnits[parts[2]])))
		if n.Cmp(big.NewInt(int64(24*time.Hour))) > 0 {
			want.Anomalies++
		}
		if !n.IsInt64() {
			n.SetInt64(math.MaxInt64)
		}
		if least == nil || n.Cmp(least) < 0 {
			least = n
		}
		if most == nil || n.Cmp(most) > 0 {
			most = n
		}
	}
	if least == nil {
		return want
	}
	if want.Remaining = time.Duration(least.Int64()); want.Remaining < time.Millisecond {
		want.Remaining = -1
	}
	apart := new(big.Int).Sub(most, least)
	if apart.Cmp(new(big.Int).Div(least, big.NewInt(5))) > 0 {
		want.Anomalies++
	}
	return want
}

// fuzzDeadline compares what two lines of one name are read as with the model,
// and with what either of them is alone.
func fuzzDeadline(t *testing.T, name string, m wireModel, a, b string) {
	for _, fields := range []func(...[2]string) map[string][]string{hopCanonical, hopLower} {
		both := stint.ParseHop(fields([2]string{name, a}, [2]string{name, b}))
		if want := m.read(a, b); both != want {
			t.Fatalf("%s: %q, %q: read as %+v, want %+v", name, a, b, both, want)
		}
		if turned := stint.ParseHop(fields([2]string{name, b}, [2]string{name, a})); turned != both {
			t.Fatalf("%s: %q, %q: the order matters: %+v and %+v", name, a, b, both, turned)
		}
		if one := stint.ParseHop(fields([2]string{name, a})); hopLimit(both) > hopLimit(one) {
			t.Fatalf("%s: %q enlarged %+v to %+v", name, b, one, both)
		}
		fuzzTold(t, both)
	}
}

// fuzzTold checks that what was read is written in a form that everybody can
// hold, never says more, and is read on the next hop as it was here.
func fuzzTold(t *testing.T, h stint.Hop) {
	t.Helper()
	fields := h.Append(nil)
	for _, f := range fields {
		if f.Name == "X-Deadline-Ms" && !regexp.MustCompile(`^[1-9][0-9]{0,7}$`).MatchString(f.Value) {
			t.Fatalf("%v is told as %q", h.Remaining, f.Value)
		}
	}
	next := stint.ParseHop(hopFields(fields))
	if next.Remaining < 0 || next.Remaining == 0 && h.Remaining > 0 || h.Remaining > 0 && next.Remaining > h.Remaining {
		t.Fatalf("%v became %v on the next hop", h.Remaining, next.Remaining)
	}
	if next.Ignored != 0 || next.Anomalies != 0 || next.Owner != h.Owner || next.Class != h.Class || next.Key != h.Key {
		t.Fatalf("%+v became %+v on the next hop", h, next)
	}
}

func FuzzDeadlineMs(f *testing.F) {
	names := []string{"X-Deadline-Ms", "X-Timeout-Ms", "Connect-Timeout-Ms", "X-Envoy-Expected-Rq-Timeout-Ms"}
	models := []wireModel{modelMillis, modelMillis, modelConnect, modelEnvoy}
	fuzzSeeds(f, "deadlines.json", func(name, line string) {
		for i, n := range names {
			if strings.EqualFold(n, name) {
				f.Add(uint8(i), line, "250")
			}
		}
	})
	f.Fuzz(func(t *testing.T, form uint8, a, b string) {
		i := int(form) % len(names)
		fuzzDeadline(t, names[i], models[i], a, b)
	})
}

func FuzzGRPCTimeout(f *testing.F) {
	fuzzSeeds(f, "deadlines.json", func(name, line string) {
		if name == "grpc-timeout" {
			f.Add(line, "250m")
		}
	})
	f.Fuzz(func(t *testing.T, a, b string) { fuzzDeadline(t, "Grpc-Timeout", modelGRPC, a, b) })
}

// fuzzSingle checks a name of which one value is allowed against the form of a
// valid one; get is what was read. It returns what one line is read as.
func fuzzSingle(t *testing.T, name string, form *regexp.Regexp, get func(stint.Hop) string, a, b string) (read string) {
	for _, n := range []string{name, strings.ToLower(name)} {
		h := stint.ParseHop(map[string][]string{n: {a}})
		read = get(h)
		value := strings.Trim(a, " \t")
		switch {
		case form.MatchString(value) != (read != ""):
			t.Fatalf("%s: %q was read as %q", name, a, read)
		case read == "" && h != stint.Hop{Ignored: 1}:
			t.Fatalf("%s: %q: %+v, want nothing but 1 ignored", name, a, h)
		case read != "" && (h.Ignored != 0 || !strings.Contains(value, read) && !strings.EqualFold(value, read)):
			t.Fatalf("%s: %q: %+v", name, a, h)
		}
		fuzzTold(t, h)
		if two := stint.ParseHop(map[string][]string{n: {a, b}}); two != (stint.Hop{Ignored: 2}) {
			t.Fatalf("%s: %q and %q: %+v, want nothing but 2 ignored", name, a, b, two)
		}
	}
	return read
}

func FuzzIdempotencyKey(f *testing.F) {
	fuzzSeeds(f, "idempotency-keys.json", func(_, line string) { f.Add(line, "k") })
	form := regexp.MustCompile(`^(?:[!#-~]{1,255}|"[!#-~]{1,255}")$`)
	key := func(h stint.Hop) string { return h.Key }
	f.Fuzz(func(t *testing.T, a, b string) {
		if k := fuzzSingle(t, "Idempotency-Key", form, key, a, b); k != "" {
			if again := fuzzSingle(t, "Idempotency-Key", form, key, `"`+k+`"`, b); again != k {
				t.Fatalf("%q, quoted, was read as %q", k, again)
			}
		}
	})
}

func FuzzRetryOwner(f *testing.F) {
	fuzzSeeds(f, "owners.json", func(_, line string) { f.Add(line, "o") })
	form := regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,64}$")
	f.Fuzz(func(t *testing.T, a, b string) {
		fuzzSingle(t, "X-Retry-Owner", form, func(h stint.Hop) string { return h.Owner }, a, b)
	})
}

func FuzzCriticality(f *testing.F) {
	fuzzSeeds(f, "classes.json", func(_, line string) { f.Add(line, "critical") })
	form := regexp.MustCompile(`^(?:[Ss][Hh][Ee][Dd][Dd][Aa][Bb][Ll][Ee]|[Cc][Rr][Ii][Tt][Ii][Cc][Aa][Ll])(?:-[Pp][Ll][Uu][Ss])?$`)
	f.Fuzz(func(t *testing.T, a, b string) {
		fuzzSingle(t, "X-Criticality", form, func(h stint.Hop) string { return h.Class.String() }, a, b)
	})
}
