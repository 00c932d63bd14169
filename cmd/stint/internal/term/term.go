// Package term is how text looks on a terminal: shades, lines that fit, times,
// and bars on an axis of time.
package term

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// A Shade is a colour of the terminal: the number of an ANSI escape (ECMA-48,
// SGR). Empty is none.
type Shade string

// The shades.
const (
	Bold   Shade = "1"
	Dim    Shade = "2"
	Red    Shade = "31"
	Green  Shade = "32"
	Yellow Shade = "33"
)

// Paint returns s in a shade; as it is without colours.
func Paint(colors bool, c Shade, s string) string {
	if !colors || c == "" || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// Wrap breaks s into lines of at most so many columns that fit behind prefix,
// and indents the later ones as far as it. A longer word stands alone. The text
// has no shades: they would count.
func Wrap(prefix, s string, columns int) string {
	return Hang(prefix, strings.Repeat(" ", utf8.RuneCountInString(prefix)), s, columns)
}

// Hang is Wrap with another indent of the later lines.
func Hang(prefix, indent, s string, columns int) string {
	var b strings.Builder
	b.WriteString(prefix)
	at, first := utf8.RuneCountInString(prefix), true
	for word := range strings.FieldsSeq(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case first:
		case at+1+n > columns:
			b.WriteString("\n" + indent)
			at = utf8.RuneCountInString(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		first = false
		b.WriteString(word)
		at += n
	}
	b.WriteByte('\n')
	return b.String()
}

// Millis is d in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// Duration is d as it is printed.
func Duration(d time.Duration) string { return MillisText(Millis(d)) }

// MillisText is a time as it is printed: two or three digits are enough.
func MillisText(ms float64) string {
	switch {
	case ms >= 1000 && math.Mod(ms, 1000) == 0:
		return fmt.Sprintf("%.0f s", ms/1000)
	case ms >= 9999.5:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 9.95 || ms == math.Trunc(ms):
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
