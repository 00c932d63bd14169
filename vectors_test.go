package stint_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// vectors is a file of testdata/wire, from which every implementation of the
// wire can be tested; its README.md says what the fields mean.
type vectors struct {
	Header                               string
	NowMs, ToleranceMs, DefaultMs, MaxMs int64
	Vectors                              []vector
}

type vector struct {
	Name      string
	Headers   [][2]string
	Values    []string
	Expect    string
	Ms        int64
	SkewMs    int64
	Ignored   *int
	Anomalies *int
	Folded    bool
	Note      string
}

func readVectors(t testing.TB, file string) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/wire/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Vectors) < 40 {
		t.Fatalf("only %d vectors: the file was not read as it is meant", len(v.Vectors))
	}
	return v
}

// counts compares what was counted with what a vector says of it, if it does.
func (v vector) counts(t *testing.T, ignored, anomalies int) {
	t.Helper()
	if v.Ignored != nil && ignored != *v.Ignored {
		t.Errorf("%d ignored, want %d", ignored, *v.Ignored)
	}
	if v.Anomalies != nil && anomalies != *v.Anomalies {
		t.Errorf("%d anomalies, want %d", anomalies, *v.Anomalies)
	}
	if strings.Contains(v.Note, "counted") && ignored == 0 {
		t.Error("the malformed value was not counted")
	}
}

// timeVectors runs the vectors of a file about deadlines through a Gate, at the
// file's own time, with the names as HTTP and as gRPC have them.
func timeVectors(t *testing.T, file string, check func(t *testing.T, v vector, e stint.Event)) {
	f := readVectors(t, file)
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	spellings := map[string]func(...[2]string) map[string][]string{"canonical": hopCanonical, "lower": hopLower}
	for spelling, fields := range spellings {
		for _, v := range f.Vectors {
			if v.Folded {
				continue
			}
			t.Run(spelling+"/"+v.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Until(time.UnixMilli(f.NowMs))) // virtual
					var rec stinttest.Recorder
					g := hopGate(t, stint.GateOptions{Reserve: stint.NoReserve, Observer: &rec,
						DefaultTimeout: ms(f.DefaultMs), MaxTimeout: ms(f.MaxMs), ClockSkew: ms(f.ToleranceMs)})
					left, ok := hopAdmit(t, g, fields(v.Headers...))
					if want := v.Expect != "expired"; ok != want {
						t.Fatalf("let in: %v, want %v", ok, want)
					}
					want, known := map[string]int64{"deadline": v.Ms, "default": f.DefaultMs, "max": f.MaxMs, "expired": 0}[v.Expect]
					if !known {
						t.Fatalf("the file expects %q, which this test does not know", v.Expect)
					}
					if left.Milliseconds() != want {
						t.Errorf("%v for the work, want %d ms", left, want)
					}
					check(t, v, rec.Events(stint.GateEntered)[0])
				})
			})
		}
	}
}

func TestDeadlineVectors(t *testing.T) {
	timeVectors(t, "deadlines.json", func(t *testing.T, v vector, e stint.Event) {
		v.counts(t, e.Ignored, e.Anomalies)
		if e.Skew != 0 {
			t.Errorf("a skew of %v though no clock was asked", e.Skew)
		}
	})
}

func TestAbsoluteDeadlineVectors(t *testing.T) {
	timeVectors(t, "absolute-deadlines.json", func(t *testing.T, v vector, e stint.Event) {
		if v.Ignored == nil {
			v.Ignored = new(int)
		}
		v.counts(t, e.Ignored, e.Anomalies)
		if e.Skew.Milliseconds() != v.SkewMs {
			t.Errorf("a skew of %v, want %d ms", e.Skew, v.SkewMs)
		}
	})
}

// Without ClockSkew no clock decides or is judged, whatever it says.
func TestAbsoluteDeadlineIsOptIn(t *testing.T) {
	f := readVectors(t, "absolute-deadlines.json")
	for _, v := range f.Vectors {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.UnixMilli(f.NowMs)))
			var rec stinttest.Recorder
			g := hopGate(t, stint.GateOptions{Reserve: stint.NoReserve, Observer: &rec})
			var relative [][2]string
			absolute := 0
			for _, h := range v.Headers {
				if h[0] != "X-Request-Deadline" {
					relative = append(relative, h)
				} else {
					absolute++
				}
			}
			want, wantOK := hopAdmit(t, g, hopCanonical(relative...))
			left, ok := hopAdmit(t, g, hopCanonical(v.Headers...))
			e := rec.Events(stint.GateEntered)[1]
			if left != want || ok != wantOK || absolute > 0 && e.Ignored == 0 || e.Skew != 0 {
				t.Errorf("%s: %v, let in: %v, %d ignored, skew %v; want %v, %v, some and none", v.Name, left, ok, e.Ignored, e.Skew, want, wantOK)
			}
		})
	}
}

// The names with one value, and what ParseHop makes of it.
var singleValues = map[string]func(stint.Hop) string{
	"idempotency-keys.json": func(h stint.Hop) string { return h.Key },
	"owners.json":           func(h stint.Hop) string { return h.Owner },
	"classes.json":          func(h stint.Hop) string { return h.Class.String() },
}

func TestSingleValueVectors(t *testing.T) {
	for file, get := range singleValues {
		f := readVectors(t, file)
		for _, v := range f.Vectors {
			if v.Folded {
				continue
			}
			for _, name := range []string{f.Header, strings.ToLower(f.Header)} {
				t.Run(name+"/"+v.Name, func(t *testing.T) {
					h := stint.ParseHop(map[string][]string{name: v.Values})
					if got := get(h); got != v.Expect {
						t.Errorf("%q, want %q", got, v.Expect)
					}
					v.counts(t, h.Ignored, h.Anomalies)
				})
			}
		}
	}
}
