package policy

import (
	"fmt"

	"github.com/stint-go/stint"
)

// Routes returns the views of g, a Gate of this file, that its routes need: those
// of exempt, of longRunning and of routes, by pattern. stinthttp.Routes takes
// them as they are. It is empty where the file names none.
func (f *File) Routes(g *stint.Gate) (map[string]*stint.Gate, error) {
	views := map[string]*stint.Gate{}
	if f.Entry == nil {
		return views, nil
	}
	for _, p := range f.Entry.Exempt {
		views[p] = g.Exempt()
	}
	for _, p := range f.Entry.LongRunning {
		views[p] = g.LongRunning()
	}
	for p, r := range f.Entry.Routes {
		view, err := g.With(r.options(g.Options()))
		if err != nil {
			return nil, fmt.Errorf("policy: %s: entry.routes.%s: %w", f.At("entry", "routes", p), p, err)
		}
		views[p] = view
	}
	return views, nil
}

// options are those of the whole Gate with what differs for the route.
func (r *Route) options(o stint.GateOptions) stint.GateOptions {
	over(&o.DefaultTimeout, r.Deadline)
	o.MaxTimeout = max(o.MaxTimeout, r.Deadline)
	over(&o.MinUseful, r.MinUseful)
	o.Class = classes[r.Class]
	o.ObserveOnly = o.ObserveOnly || r.ObserveOnly
	return o
}
