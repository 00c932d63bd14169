package stint

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// The learned delay of a hedge: see Hedge.Delay.
const (
	warmUp     = 100 // samples before the first answer
	generation = 500 // samples after which the older half is forgotten
	refresh    = 20  // samples after which the answer is worked out again

	steps       = 8 // buckets a doubling, so that one is at most an eighth wide
	doublings   = 24
	bucketCount = steps * (doublings + 1)
	minLearned  = time.Millisecond
)

// latencies is a streaming histogram of recent latencies in constant memory
// (1.6 KiB): log-linear buckets from 1 µs to 2 minutes in two generations, of
// which the older is forgotten when the younger is full. It knows no clock: what
// a quiet dependency did an hour ago is the best that is known of it.
type latencies struct {
	answer atomic.Int64 // the 95th percentile in ns; 0: still warming up

	mu       sync.Mutex
	now, old [bucketCount]uint16
	n        int // samples in now
}

// p95 returns the 95th percentile, and whether enough is known.
func (l *latencies) p95() (time.Duration, bool) {
	d := time.Duration(l.answer.Load())
	return d, d > 0
}

// record adds a sample.
func (l *latencies) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now[bucket(d)]++
	l.n++
	known := l.answer.Load() > 0
	if l.n%refresh == 0 && (known || l.n >= warmUp) {
		l.answer.Store(int64(max(l.quantile(95), minLearned)))
	}
	if l.n == generation {
		l.old, l.now, l.n = l.now, [bucketCount]uint16{}, 0
	}
}

// quantile returns the upper bound of the bucket that holds the given
// percentile (nearest rank).
func (l *latencies) quantile(percent int) time.Duration {
	total := 0
	for i := range l.now {
		total += int(l.now[i]) + int(l.old[i])
	}
	rank := (total*percent + 99) / 100
	for i := range l.now {
		if rank -= int(l.now[i]) + int(l.old[i]); rank <= 0 {
			return upper(i)
		}
	}
	return upper(bucketCount - 1)
}

// bucket returns the index for d: the first 8 are 1 µs wide, and from there on
// each doubling has 8.
func bucket(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < steps {
		return int(us)
	}
	e := bits.Len64(us) - 4 // so that us>>e is 8 to 15
	return min(steps*(e+1)+int(us>>e)-steps, bucketCount-1)
}

// upper returns the smallest latency above bucket i.
func upper(i int) time.Duration {
	if i < steps {
		return time.Duration(i+1) * time.Microsecond
	}
	e := i/steps - 1
	return time.Duration((i%steps+steps+1)<<e) * time.Microsecond
}
