package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// defaultEvery is how often a watched file is read.
const defaultEvery = 2 * time.Second

// WatchOptions are what a Watcher needs besides its file.
type WatchOptions struct {
	// Every is how often the file is read, by its content: so a replaced symbolic
	// link, as Kubernetes makes them, is seen like an edited file. Zero means 2 s;
	// at least 1 ms.
	Every time.Duration

	// Changed is told of each new content: with the File that is now in force, or
	// with the one that stays in force and the error of the new one. It is called
	// from the Watcher's goroutine, one call at a time. Nil: nobody is told.
	Changed func(inForce *File, err error)

	// Caller and Gate are what the Watcher's Callers and Gate need besides their
	// numbers; see File.Caller and File.Gate. Nil: nothing.
	Caller *stint.CallerOptions
	Gate   *stint.GateOptions
}

// A Watcher keeps Callers and a Gate in line with a policy file while they are
// in use: a new file takes effect from the next call and the next request on,
// and what breakers, budgets, bulkheads and limits know stays. A file that can't
// be read, or does not fit what is in use, changes nothing and is reported. Its
// methods may be called at the same time.
type Watcher struct {
	path string
	opts WatchOptions

	mu      sync.Mutex
	content []byte
	file    *File
	callers map[string]*stint.Caller
	gate    *stint.Gate
	routes  map[string]*stint.Gate // nil until they have been asked for
}

// Watch loads the file at path and watches it until ctx ends; o may be nil. The
// error is Load's.
func Watch(ctx context.Context, path string, o *WatchOptions) (*Watcher, error) {
	if o == nil {
		o = &WatchOptions{}
	}
	w := &Watcher{path: path, opts: *o, callers: map[string]*stint.Caller{}}
	if w.opts.Every == 0 {
		w.opts.Every = defaultEvery
	}
	if w.opts.Every < time.Millisecond {
		return nil, fmt.Errorf("policy: WatchOptions.Every is %v: must be at least 1ms, or zero for %v", w.opts.Every, defaultEvery)
	}
	var err error
	if w.content, err = read(path); err != nil {
		return nil, err
	}
	if w.file, err = Parse(path, w.content); err != nil {
		return nil, err
	}
	go w.watch(ctx)
	return w, nil
}

func (w *Watcher) watch(ctx context.Context) {
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if changed, err := w.look(); changed && w.opts.Changed != nil {
			w.opts.Changed(w.File(), err)
		}
	}
}

// look reads the file, and puts it in force if it is new. A file that is bad, or
// gone, is news once.
func (w *Watcher) look() (changed bool, err error) {
	content, err := read(w.path)
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(content, w.content) && (content == nil) == (w.content == nil) {
		return false, nil
	}
	w.content = content
	if err != nil {
		return true, err
	}
	next, err := Parse(w.path, content)
	if err == nil {
		err = w.fits(next)
	}
	if err == nil {
		err = w.install(next)
	}
	return true, err
}

// fits says why a file can't take the place of the one in force without a
// restart.
func (w *Watcher) fits(next *File) error {
	refuse := func(text string, key ...string) error {
		return &Problem{next.At(key...), "", text + "; restart the service for that"}
	}
	if next.Service != w.file.Service {
		return refuse(fmt.Sprintf("the service was %s and is %s", w.file.Service, next.Service), "service")
	}
	for _, name := range sorted(w.callers) {
		if next.Dependencies[name] == nil {
			return refuse(fmt.Sprintf("dependency %s is in use, and gone", name), "dependencies")
		}
	}
	switch {
	case w.gate == nil:
	case next.Entry == nil:
		return refuse("entry is in use, and gone")
	case w.routes != nil && !maps.Equal(next.kinds(), w.file.kinds()):
		return refuse("the routes of entry are others than before", "entry", "routes")
	}
	return nil
}

// kinds says which of the entry's lists names each pattern.
func (f *File) kinds() map[string]string {
	kinds := map[string]string{}
	for _, p := range f.Entry.Exempt {
		kinds[p] = "exempt"
	}
	for _, p := range f.Entry.LongRunning {
		kinds[p] = "longRunning"
	}
	for p := range f.Entry.Routes {
		kinds[p] = "routes"
	}
	return kinds
}

// install puts a file that fits in force. What can fail comes first.
func (w *Watcher) install(next *File) error {
	policies := map[string]stint.Policy{}
	for name := range w.callers {
		p, err := next.Policy(name)
		if err != nil {
			return err
		}
		policies[name] = p
	}
	if w.gate != nil {
		o, err := next.gateOptions(w.opts.Gate)
		if err != nil {
			return err
		}
		if err := w.gate.SetOptions(o); err != nil {
			return err
		}
		for p, view := range w.routes {
			o := w.gate.Options()
			if r := next.Entry.Routes[p]; r != nil {
				o = r.options(o)
			} else if view.IsLongRunning() {
				o.DefaultTimeout, o.MaxTimeout = 0, 0 // its own
			}
			if err := view.SetOptions(o); err != nil {
				return err
			}
		}
	}
	for name, c := range w.callers {
		if err := c.SetPolicy(policies[name]); err != nil {
			return err
		}
	}
	w.file = next
	return nil
}

// File returns the file in force.
func (w *Watcher) File() *File {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file
}

// Caller returns the Caller for the named dependency: the same one each time.
func (w *Watcher) Caller(dependency string) (*stint.Caller, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.callers[dependency]; c != nil {
		return c, nil
	}
	c, err := w.file.Caller(dependency, w.opts.Caller)
	if err == nil {
		w.callers[dependency] = c
	}
	return c, err
}

// Gate returns the service's Gate: the same one each time.
func (w *Watcher) Gate() (*stint.Gate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.theGate()
}

func (w *Watcher) theGate() (*stint.Gate, error) {
	if w.gate != nil {
		return w.gate, nil
	}
	g, err := w.file.Gate(w.opts.Gate)
	if err == nil {
		w.gate = g
	}
	return g, err
}

// Routes returns the Gate's views by pattern, as File.Routes does: the same ones
// each time. Once they have been asked for, a new file has to name the same
// patterns.
func (w *Watcher) Routes() (map[string]*stint.Gate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.routes == nil {
		g, err := w.theGate()
		if err != nil {
			return nil, err
		}
		if w.routes, err = w.file.Routes(g); err != nil {
			return nil, err
		}
	}
	return maps.Clone(w.routes), nil
}
