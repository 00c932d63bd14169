package stint

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Every latency lies in its bucket, and no bucket is wider than an eighth.
func TestLatencyBuckets(t *testing.T) {
	for i := range bucketCount - 1 {
		lower := time.Duration(0)
		if i > 0 {
			lower = upper(i - 1)
		}
		if b := bucket(lower); b != i {
			t.Fatalf("%v lies in bucket %d, want %d", lower, b, i)
		}
		if b := bucket(upper(i) - 1); b != i {
			t.Fatalf("%v lies in bucket %d, want %d", upper(i)-1, b, i)
		}
		if width := upper(i) - lower; width > max(time.Microsecond, lower/8) {
			t.Errorf("bucket %d is %v wide from %v on", i, width, lower)
		}
	}
	for _, d := range []time.Duration{-1, 0, forever} {
		if b := bucket(d); b != 0 && b != bucketCount-1 {
			t.Errorf("%v lies in bucket %d", d, b)
		}
	}
	if far := upper(bucketCount - 1); far < 2*time.Minute {
		t.Errorf("the last bucket ends at %v, want 2 minutes at least", far)
	}
}

func TestLatencyQuantile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var l latencies
	var all []time.Duration
	for n := 1; n <= 3*generation; n++ {
		d := time.Duration(rnd.ExpFloat64() * float64(20*time.Millisecond))
		all = append(all, d)
		l.record(d)
		got, ok := l.p95()
		if ok != (n >= warmUp) {
			t.Fatalf("after %d samples: known %v", n, ok)
		}
		if n%refresh != 0 || !ok {
			continue
		}
		recent := slices.Clone(all[max(0, (n-1)/generation-1)*generation:]) // this generation and the one before
		slices.Sort(recent)
		exact := recent[(len(recent)*95+99)/100-1]
		if got < exact || got > exact+exact/8+time.Microsecond {
			t.Errorf("after %d samples: %v, want %v and at most an eighth more", n, got, exact)
		}
	}
	var fast latencies
	for range warmUp {
		fast.record(0)
	}
	if d, ok := fast.p95(); !ok || d != minLearned {
		t.Errorf("a fast dependency: %v, %v; want no less than %v", d, ok, minLearned)
	}
}

func TestLatencyAlone(t *testing.T) {
	var l latencies
	if n := testing.AllocsPerRun(1000, func() { l.record(time.Millisecond); l.p95() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
