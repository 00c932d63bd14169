package stintsql

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// mostResends is how often database/sql gives a call to another connection. What was never sent it may try as often as it
// likes, since calls of one context and the same words are taken for one another.
const mostResends = 2

// A resend is a call that database/sql has been given back, and makes again on another
// connection: the same call, and so within the time and the attempts of the first.
type resend struct {
	ctx     context.Context // the caller's: database/sql hands on what it was given
	step    step
	query   string
	ends    time.Time // when the call has to be over
	times   int       // how often it was given back
	made    int       // the attempts, but for those that found their connection dead
	unknown bool      // one of them may have had an effect
}

// resends are those that have not come yet.
type resends struct {
	some atomic.Bool // quickly seen; of a change that is under way nobody has to know: his own is before him
	mu   sync.Mutex
	list []resend
}

// add takes note of a call that is given back. Some never come again, as a sql.Conn's: they are
// forgotten when their time is over.
func (r *resends) add(s resend) {
	if !reflect.ValueOf(s.ctx).Comparable() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clean()
	r.list = append(r.list, s)
	r.some.Store(true)
}

// take returns the call that this one goes on with.
func (r *resends) take(ctx context.Context, step step, query string) (s resend) {
	if !r.some.Load() || !reflect.ValueOf(ctx).Comparable() { // to compare it would panic
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clean()
	i := slices.IndexFunc(r.list, func(s resend) bool { return s.ctx == ctx && s.step == step && s.query == query })
	if i >= 0 {
		s = r.list[i]
		r.list = slices.Delete(r.list, i, i+1)
	}
	r.some.Store(len(r.list) > 0)
	return s
}

func (r *resends) clean() {
	now := time.Now()
	r.list = slices.DeleteFunc(r.list, func(s resend) bool { return !now.Before(s.ends) })
}
