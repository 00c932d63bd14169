package stint

import (
	"slices"
	"time"
)

// A waiter is a request in front of a full service.
type waiter struct {
	who    any
	rank   int       // the highest comes first
	urgent time.Time // when it has to be answered; in a FIFO, when it came
	until  time.Time // when it has to be called
}

const highestRank = 2*int(CriticalPlus) + 1 // a first try

// waitqueue holds waiters in the order in which they will be called: by rank,
// and the most urgent of a rank first. It is a sorted slice: it is short, since a
// request that would wait too long is refused at once.
type waitqueue struct {
	list []waiter // the next one last
}

// ahead returns how many would be called before w.
func (q *waitqueue) ahead(w waiter) int { return len(q.list) - q.place(w) }

// place returns where in the list w belongs: behind, in the queue's sense, those
// that are as urgent.
func (q *waitqueue) place(w waiter) int {
	i, _ := slices.BinarySearchFunc(q.list, w, func(e, w waiter) int {
		if e.rank < w.rank || e.rank == w.rank && e.urgent.After(w.urgent) {
			return -1
		}
		return 1
	})
	return i
}

func (q *waitqueue) add(w waiter) { q.list = slices.Insert(q.list, q.place(w), w) }

// next takes out the one to call.
func (q *waitqueue) next() (w waiter, ok bool) {
	n := len(q.list) - 1
	if n < 0 {
		return w, false
	}
	w = q.list[n]
	q.list[n] = waiter{}
	q.list = q.list[:n]
	return w, true
}

// promote has those that wait called before all that come later, in the order that
// they have now.
func (q *waitqueue) promote() {
	for i := range q.list {
		q.list[i].rank += highestRank + 1
	}
}

// remove takes out one that gives up, and reports whether it was there.
func (q *waitqueue) remove(who any) bool {
	for i := range q.list {
		if q.list[i].who == who {
			q.list = slices.Delete(q.list, i, i+1)
			return true
		}
	}
	return false
}
