package stint

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// limitForm is one way in which a request can name its time limit.
type limitForm struct {
	digits     int  // most digits; more are a malformed value
	unit       bool // ends in one of gRPC's unit letters, else milliseconds
	zeroIsNone bool // 0 means "no limit" there, as at Envoy; else "expired"
	absolute   bool // Unix milliseconds: what just so many digits can only be
}

// limitForms are the forms that are read (docs/wire.md), by their fields. Only
// the first is written by Append.
var limitForms = [...]limitForm{
	fieldDeadline: {digits: math.MaxInt},
	fieldTimeout:  {digits: math.MaxInt},
	fieldGRPC:     {digits: 8, unit: true},
	fieldConnect:  {digits: 10},
	fieldEnvoy:    {digits: math.MaxInt, zeroIsNone: true},
	fieldUntil:    {digits: 13, absolute: true},
}

// timeLimit is the smallest limit that a request names.
type timeLimit struct {
	said        bool
	left, most  time.Duration // the smallest and the largest
	until       time.Time     // the earliest
	malformed   int
	implausible int
}

// anomalies counts what can't be right though it can be read.
func (l *timeLimit) anomalies() int {
	n := l.implausible
	if l.said && l.most-l.left > l.left/5 {
		n++
	}
	return n
}

// read takes in one header line, which may hold a list.
func (l *timeLimit) read(f *limitForm, line string) {
	for {
		member, rest, more := strings.Cut(line, ",")
		l.readMember(f, trim(member))
		if !more {
			return
		}
		line = rest
	}
}

func (l *timeLimit) readMember(f *limitForm, s string) {
	unit := time.Millisecond
	if f.unit {
		if s == "" {
			l.malformed++
			return
		}
		if unit = grpcUnit(s[len(s)-1]); unit == 0 {
			l.malformed++
			return
		}
		s = s[:len(s)-1]
	}
	n, ok := digits(s, f.digits)
	switch {
	case !ok, f.absolute && len(s) < f.digits:
		l.malformed++
	case f.absolute:
		if t := time.UnixMilli(n); l.until.IsZero() || t.Before(l.until) {
			l.until = t
		}
	case n == 0 && f.zeroIsNone:
	default:
		left := mulSat(n, unit)
		l.said = true
		l.left, l.most = min(l.left, left), max(l.most, left)
		if left > maxWrite {
			l.implausible++
		}
	}
}

// readClock makes the time left at now of a hop's absolute deadline, where it is
// to be believed, and returns how far the sender's clock seems to be ahead of
// this one (negative: behind) if that is more than tolerance. A relative limit
// wins. What can't be right, being in the past or beyond longest by more than
// tolerance, is ignored and counted: a wrong clock must not take a service down.
func (h *Hop) readClock(now time.Time, tolerance, longest time.Duration) (skew time.Duration) {
	until := h.Until
	h.Until = time.Time{}
	switch {
	case until.IsZero():
		return 0
	case tolerance <= 0: // not asked for
		h.Ignored++
		return 0
	case h.Remaining != 0:
		if skew = until.Sub(now.Add(max(h.Remaining, 0))); skew < -tolerance || skew > tolerance {
			return skew
		}
		return 0
	}
	switch left := until.Sub(now); { // Sub saturates
	case left < -tolerance:
		h.Ignored++
		return left
	case left > longest && left-longest > tolerance:
		h.Ignored++
		return left - longest
	case left < time.Millisecond:
		h.Remaining = -1
	default:
		h.Remaining = left
	}
	return 0
}

// grpcUnit returns the length of a grpc-timeout unit, or zero for no unit
// (gRPC over HTTP/2, "TimeoutUnit").
func grpcUnit(c byte) time.Duration {
	switch c {
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	case 'S':
		return time.Second
	case 'm':
		return time.Millisecond
	case 'u':
		return time.Microsecond
	case 'n':
		return time.Nanosecond
	}
	return 0
}

// digits reads 1 to most ASCII digits, and nothing else: no sign, point,
// exponent or separator. A number out of range is the largest one, not an error.
func digits(s string, most int) (n int64, ok bool) {
	if len(s) == 0 || len(s) > most {
		return 0, false
	}
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt64-9)/10 {
			n = math.MaxInt64 // stays: n*10 would wrap
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func mulSat(n int64, unit time.Duration) time.Duration {
	if n > int64(forever)/int64(unit) {
		return forever
	}
	return time.Duration(n) * unit
}

// fourDigits holds 0000 to 9999 in a row: a part of it is the text of any number
// below 10,000 without an allocation, and most deadlines are.
var fourDigits = sync.OnceValue(func() string {
	b := make([]byte, 0, 4*10_000)
	for n := range 10_000 {
		b = append(b, byte('0'+n/1000), byte('0'+n/100%10), byte('0'+n/10%10), byte('0'+n%10))
	}
	return string(b)
})

func formatMillis(d time.Duration) string {
	n := d.Milliseconds()
	if n < 0 || n >= 10_000 {
		return strconv.FormatInt(n, 10)
	}
	zeros := 3
	for limit := int64(10); zeros > 0 && n >= limit; limit *= 10 {
		zeros--
	}
	return fourDigits()[4*n+int64(zeros) : 4*n+4]
}
