package term

import (
	"strings"
	"testing"
	"time"
)

func TestMillisText(t *testing.T) {
	for ms, want := range map[float64]string{0: "0 ms", 0.42: "0.4 ms", 1: "1 ms", 4.27: "4.3 ms", 9.96: "10 ms", 243.4: "243 ms",
		1000: "1 s", 5698.2: "5698 ms", 60000: "60 s", 12345: "12.3 s"} {
		if have := MillisText(ms); have != want {
			t.Errorf("%v: %q, want %q", ms, have, want)
		}
	}
}

func TestWrap(t *testing.T) {
	word := strings.Repeat("x", 39)
	for in, want := range map[string]string{
		"":                                "  a: \n",
		"b":                               "  a: b\n",
		word + " " + word:                 "  a: " + word + "\n     " + word + "\n",
		word + " " + word[:35] + " y":     "  a: " + word + " " + word[:35] + "\n     y\n",
		strings.Repeat("é", 75) + " tail": "  a: " + strings.Repeat("é", 75) + "\n     tail\n",
		strings.Repeat("x", 90) + " tail": "  a: " + strings.Repeat("x", 90) + "\n     tail\n",
	} {
		if have := Wrap("  a: ", in, 80); have != want {
			t.Errorf("%q: %q, want %q", in, have, want)
		}
	}
}

func TestHang(t *testing.T) {
	if have, want := Hang("a:1: ", "    ", "one two three", 10), "a:1: one\n    two\n    three\n"; have != want {
		t.Errorf("%q, want %q", have, want)
	}
}

func TestPaint(t *testing.T) {
	for _, c := range []struct {
		colors bool
		shade  Shade
		in     string
		want   string
	}{
		{true, Red, "a", "\x1b[31ma\x1b[0m"},
		{false, Red, "a", "a"},
		{true, "", "a", "a"},
		{true, Red, "", ""},
	} {
		if have := Paint(c.colors, c.shade, c.in); have != c.want {
			t.Errorf("%+v: %q", c, have)
		}
	}
	line := []Cell{Shaded('a', Red), Shaded('b', Red), Shaded('c', "")}
	if have, want := Line(true, line), "\x1b[31mab\x1b[0mc"; have != want {
		t.Errorf("%q, want %q", have, want)
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]float64{0: 0, 1500 * time.Nanosecond: 0.002, time.Second: 1000} {
		if have := Millis(d); have != want {
			t.Errorf("%v: %v, want %v", d, have, want)
		}
	}
}
