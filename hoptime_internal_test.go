package stint

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An absolute deadline is read, and believed only as far as docs/wire.md says.
// now is an argument here, so that the clock can be anywhere.
func FuzzRequestDeadline(f *testing.F) {
	text, err := os.ReadFile("testdata/wire/absolute-deadlines.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		NowMs, ToleranceMs int64
		Vectors            []struct{ Headers [][2]string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		f.Fatal(err)
	}
	for _, v := range file.Vectors {
		for _, h := range v.Headers {
			if h[0] == wireUntil {
				f.Add(h[1], "", file.NowMs, file.ToleranceMs, int64(0))
				f.Add(h[1], h[1], file.NowMs, file.ToleranceMs, int64(500))
			}
		}
	}
	form := regexp.MustCompile(`^[0-9]{13}$`)
	const longest = 30 * time.Second
	f.Fuzz(func(t *testing.T, a, b string, nowMs, toleranceMs, relativeMs int64) {
		h := ParseHop(map[string][]string{wireUntil: {a, b}})
		earliest, ignored := int64(math.MaxInt64), 0
		for _, member := range strings.Split(a+","+b, ",") {
			if member = strings.Trim(member, " \t"); !form.MatchString(member) {
				ignored++
				continue
			}
			n, err := strconv.ParseInt(member, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			earliest = min(earliest, n)
		}
		want := Hop{Ignored: ignored}
		if earliest != math.MaxInt64 {
			want.Until = time.UnixMilli(earliest)
		}
		if h != want {
			t.Fatalf("%q, %q: %+v, want %+v", a, b, h, want)
		}

		now := time.UnixMilli(1e12 + max(nowMs, -nowMs-1)%8e12) // so that no difference is out of range
		tolerance := time.Duration(toleranceMs%1e6) * time.Millisecond
		h.Remaining = max(time.Duration(relativeMs%1e6)*time.Millisecond, -1)
		before := h
		skew := h.readClock(now, tolerance, longest)
		if !h.Until.IsZero() {
			t.Fatal("the instant is left to be judged again")
		}
		left := before.Until.Sub(now) // saturates
		switch {
		case before.Until.IsZero():
			if skew != 0 || h != before {
				t.Fatalf("nothing was named: %v, %+v", skew, h)
			}
			return
		case tolerance <= 0:
			if skew != 0 || h.Remaining != before.Remaining || h.Ignored != ignored+1 {
				t.Fatalf("not asked for: %v, %+v", skew, h)
			}
			return
		case skew != 0 && skew.Abs() <= tolerance:
			t.Fatalf("a skew of %v is within %v", skew, tolerance)
		case before.Remaining != 0:
			off := left - max(before.Remaining, 0)
			if h.Remaining != before.Remaining || h.Ignored != ignored {
				t.Fatalf("a clock changed %+v to %+v", before, h)
			}
			if (skew != 0) != (off > tolerance || off < -tolerance) || skew != 0 && skew != off {
				t.Fatalf("off by %v, tolerance %v: reported %v", off, tolerance, skew)
			}
			return
		case h.Remaining == 0: // not believed
			if skew == 0 || h.Ignored != ignored+1 || left >= -tolerance && left <= longest+tolerance {
				t.Fatalf("%v left was not believed: %v, %+v", left, skew, h)
			}
		case h.Remaining == -1:
			if left >= time.Millisecond || left < -tolerance || skew != 0 {
				t.Fatalf("%v left is not expired (tolerance %v)", left, tolerance)
			}
		case h.Remaining != left || left < time.Millisecond || left > longest+tolerance || skew != 0:
			t.Fatalf("%v left became %v", left, h.Remaining)
		}
	})
}

// Instants that no Duration can hold the distance of: nothing wraps.
func TestReadClockSaturates(t *testing.T) {
	const longest = 30 * time.Second
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		now       time.Time
		remaining time.Duration
		want      time.Duration
		ahead     bool
	}{
		{year(1), 0, 0, true}, {year(1500), 0, 0, true}, {year(2600), 0, 0, false}, {year(9999), 0, 0, false},
		{year(1), time.Second, time.Second, true}, {year(9999), time.Second, time.Second, false},
		{year(1), forever, forever, true}, {year(9999), forever, forever, false}, {year(9999), -1, -1, false},
	} {
		h := Hop{Until: time.UnixMilli(1786000000000), Remaining: c.remaining}
		skew := h.readClock(c.now, time.Second, longest)
		if h.Remaining != c.want || (skew > 0) != c.ahead || skew.Abs() < 200*365*24*time.Hour {
			t.Errorf("in %d, with %v: %v left and a skew of %v", c.now.Year(), c.remaining, h.Remaining, skew)
		}
	}
	h := Hop{Until: time.UnixMilli(1786000000000)}
	if skew := h.readClock(year(2026), math.MaxInt64, math.MaxInt64); skew != 0 || h.Remaining <= 0 {
		t.Errorf("the widest options: %v left, skew %v", h.Remaining, skew)
	}
}
