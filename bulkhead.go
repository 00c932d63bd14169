package stint

import (
	"context"
	"sync"
	"time"
)

// bulkhead bounds the attempts under way to one dependency. Slots are handed
// over in the order of asking. The limit can change while slots are held.
type bulkhead struct {
	mu      sync.Mutex
	limit   int // negative: none
	held    int
	waiting []chan struct{} // closed when its slot is granted
	loose   *Flight         // list of flights whose results are in their caller's hands
	sweep   *time.Timer     // see watch
}

// acquire takes a slot, waiting at most wait for one. It reports whether it got
// it, which it may though ctx has ended, and whether it had to wait.
func (b *bulkhead) acquire(ctx context.Context, wait time.Duration) (ok, waited bool) {
	b.mu.Lock()
	if b.limit >= 0 && b.held >= b.limit {
		b.reclaim()
	}
	if b.limit < 0 || b.held < b.limit && len(b.waiting) == 0 {
		b.held++
		b.mu.Unlock()
		return true, false
	}
	granted := make(chan struct{})
	b.waiting = append(b.waiting, granted)
	b.watch()
	b.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-granted:
		return true, true
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == granted {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return false, true
		}
	}
	return true, true // granted while we were giving up
}

// try takes a slot if one is free and nobody waits for it.
func (b *bulkhead) try() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.limit < 0 || b.held < b.limit && len(b.waiting) == 0
	if free {
		b.held++
	}
	return free
}

// release gives a slot back.
func (b *bulkhead) release() {
	b.mu.Lock()
	b.held--
	b.grant()
	b.mu.Unlock()
}

// handOver leaves f's slot with whoever reads its result, until End.
func (b *bulkhead) handOver(f *Flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit < 0 { // nobody will ever want it back
		b.held--
		return
	}
	f.loose, f.next = true, b.loose
	if f.next != nil {
		f.next.prev = f
	}
	b.loose = f
	b.watch()
}

// end gives the slot of a flight that was handed over back, once.
func (b *bulkhead) end(f *Flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unlink(f)
	b.grant()
}

// reclaim takes back the slots of results that nobody closed in their time:
// their contexts are over, so they cost the dependency nothing any more. It is
// done only when somebody wants a slot, so that an ordinary call needs no timer.
func (b *bulkhead) reclaim() {
	now := time.Now()
	for f := b.loose; f != nil; {
		next := f.next
		if !now.Before(f.current.deadline) {
			b.unlink(f)
		}
		f = next
	}
	b.grant()
}

// watch has slots reclaimed as they fall due, while somebody waits for one.
func (b *bulkhead) watch() {
	if len(b.waiting) == 0 || b.loose == nil {
		return
	}
	due := b.loose.current.deadline
	for f := b.loose.next; f != nil; f = f.next {
		if ends := f.current.deadline; ends.Before(due) {
			due = ends
		}
	}
	if b.sweep != nil {
		b.sweep.Stop()
	}
	b.sweep = time.AfterFunc(time.Until(due), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reclaim()
		b.watch()
	})
}

func (b *bulkhead) unlink(f *Flight) {
	if !f.loose {
		return
	}
	b.held--
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		b.loose = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	f.loose, f.prev, f.next = false, nil, nil
}

// setLimit changes the limit; slots held above a lower one run out by themselves.
func (b *bulkhead) setLimit(n int) {
	b.mu.Lock()
	b.limit = n
	b.grant()
	b.mu.Unlock()
}

func (b *bulkhead) grant() {
	for len(b.waiting) > 0 && (b.limit < 0 || b.held < b.limit) {
		b.held++
		close(b.waiting[0])
		b.waiting = b.waiting[1:]
	}
}
