package stinthttp

import (
	"encoding/json"
	"math"
	"math/big"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Whatever a server asks for is never a negative or a wrapped wait, and never a
// shorter one because something was added.
func FuzzRetryAfter(f *testing.F) {
	text, err := os.ReadFile("../testdata/wire/retry-after.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Vectors []struct{ Headers [][2]string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		f.Fatal(err)
	}
	const today = "Thu, 06 Aug 2026 07:06:40 GMT"
	for _, v := range file.Vectors {
		seed := map[string]string{headerRetryMs: "", "Date": today}
		for _, h := range v.Headers {
			seed[h[0]] = h[1]
		}
		f.Add(seed[headerRetryAfter], "3", seed[headerRetryMs], seed["Date"])
	}
	digits := regexp.MustCompile(`^[ \t]*([0-9]+)[ \t]*$`)
	model := func(line string, unit time.Duration) (time.Duration, bool) {
		parts := digits.FindStringSubmatch(line)
		if parts == nil {
			return 0, false
		}
		n, _ := new(big.Int).SetString(parts[1], 10)
		if n.Mul(n, big.NewInt(int64(unit))); !n.IsInt64() {
			return math.MaxInt64, true
		}
		return time.Duration(n.Int64()), true
	}
	f.Fuzz(func(t *testing.T, a, b, ms, theirs string) {
		if _, ok := date(theirs, time.Now()); !ok {
			theirs = today // else two readings would be by two clocks
		}
		read := func(lines ...string) (time.Duration, bool) {
			t.Helper()
			wait, ok := retryAfter(http.Header{headerRetryAfter: lines, "Date": {theirs}})
			if wait < 0 || !ok && wait != 0 {
				t.Fatalf("%q: wait %v, %v", lines, wait, ok)
			}
			return wait, ok
		}
		one, okOne := read(a)
		other, okOther := read(b)
		both, ok := read(a, b)
		if both != max(one, other) || ok != (okOne || okOther) {
			t.Fatalf("%q is %v, %v; %q is %v, %v; together %v, %v", a, one, okOne, b, other, okOther, both, ok)
		}
		if want, number := model(a, time.Second); number {
			if one != want || !okOne {
				t.Fatalf("%q: %v, %v, want %v", a, one, okOne, want)
			}
			if longer, _ := read(strings.Trim(a, " \t") + "0"); longer < one {
				t.Fatalf("%q: %v, and ten times that %v", a, one, longer)
			}
		} else if okOne {
			at, err := http.ParseTime(strings.Trim(a, " \t"))
			if err != nil {
				t.Fatalf("%q is no number and no date, but %v", a, one)
			}
			now, _ := date(theirs, time.Now())
			fits := one == max(at.Sub(now), 0)
			for century := -99; century < 99 && strings.Contains(a, "-"); century++ { // of two digits, RFC 850's
				fits = fits || one == max(at.AddDate(100*century, 0, 0).Sub(now), 0)
			}
			if !fits || strings.Contains(a, "-") && one > 51*366*24*time.Hour {
				t.Fatalf("%q by a server of %q: %v", a, theirs, one)
			}
		}

		finer, ok := retryAfter(http.Header{headerRetryAfter: {a, b}, headerRetryMs: {ms}, "Date": {theirs}})
		if want, number := model(ms, time.Millisecond); number {
			if finer != want || !ok {
				t.Fatalf("%q ms: %v, %v, want %v", ms, finer, ok, want)
			}
		} else if finer != both || ok != (okOne || okOther) {
			t.Fatalf("%q ms changed %v to %v", ms, both, finer)
		}

		// What we tell our own caller is never less, and not a millisecond more.
		told := http.Header{}
		setRetryAfter(told, finer)
		if again, ok := retryAfter(told); again < finer || again-finer >= time.Millisecond || ok != (finer > 0) {
			t.Fatalf("%v was told as %v, and read as %v", finer, told, again)
		}

		// By our own clock, or with anything else under Date, there is nothing to
		// compare with but the bounds.
		if wait, _ := retryAfter(http.Header{headerRetryAfter: {a}, "Date": {b}}); wait < 0 {
			t.Fatalf("%q, Date %q: %v", a, b, wait)
		}
	})
}
