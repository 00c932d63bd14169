package stinthttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter reads how long a server asks to wait (RFC 9110, 10.2.3), and
// whether it does. Retry-After-Ms is finer and wins. Of several values the
// longest counts: the wait is a floor. A number too large for a Duration is the
// longest wait there is; a date is measured against the server's own Date, so
// that its clock does not matter, and one in the past is "at once". What can't
// be read says nothing.
func retryAfter(h http.Header) (wait time.Duration, ok bool) {
	for _, v := range h[headerRetryMs] {
		if n, valid := number(v); valid {
			wait, ok = max(wait, scale(n, time.Millisecond)), true
		}
	}
	if ok {
		return wait, true
	}
	for _, v := range h[headerRetryAfter] {
		if n, valid := number(v); valid {
			wait, ok = max(wait, scale(n, time.Second)), true
			continue
		}
		now := time.Now()
		if theirs, valid := date(h.Get("Date"), now); valid {
			now = theirs
		}
		if at, valid := date(v, now); valid {
			wait, ok = max(wait, at.Sub(now)), true // Sub saturates
		}
	}
	return wait, ok
}

// rfc850 is time.RFC850 with the only zone that HTTP has. (http.ParseTime takes
// any zone's letters, and is then wrong by that zone's offset.)
const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

// date reads a date in any of the three forms of RFC 9110 (5.6.7).
func date(s string, now time.Time) (t time.Time, ok bool) {
	s = strings.Trim(s, " \t")
	for _, form := range [...]string{http.TimeFormat, rfc850, time.ANSIC} {
		t, err := time.Parse(form, s)
		if err != nil {
			continue
		}
		if form == rfc850 { // two digits of a year are at most 50 years ahead
			century := now.UTC().Year() - now.UTC().Year()%100
			t = t.AddDate(century-t.Year()+t.Year()%100, 0, 0)
			if t.After(now.AddDate(50, 0, 0)) {
				t = t.AddDate(-100, 0, 0)
			}
		}
		return t, true
	}
	return time.Time{}, false
}

// number reads ASCII digits only; out of range is the largest.
func number(s string) (n int64, ok bool) {
	s = strings.Trim(s, " \t")
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && s != "" {
		return math.MaxInt64, true // digits, so only the range can be wrong
	}
	return n, s != ""
}

func scale(n int64, unit time.Duration) time.Duration {
	if n > math.MaxInt64/int64(unit) {
		return math.MaxInt64
	}
	return time.Duration(n) * unit
}

// setRetryAfter writes a wait: whole seconds rounded up, so that nobody is told
// to come too soon, and the milliseconds where there are any.
func setRetryAfter(h http.Header, wait time.Duration) {
	if wait <= 0 {
		return
	}
	seconds := int64(wait / time.Second)
	if wait%time.Second != 0 {
		seconds++
		h.Set(headerRetryMs, strconv.FormatInt(int64((wait-1)/time.Millisecond)+1, 10))
	}
	h.Set(headerRetryAfter, strconv.FormatInt(seconds, 10))
}
