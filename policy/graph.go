package policy

import (
	"fmt"
	"slices"
	"time"
)

// A Graph is the policies of services that call each other. A dependency leads to
// the policy of the service that it names, or of the one that is called as it is,
// and a store to none. Only who names the service has a peer there, which is told of
// the retry owner. It may be read by several goroutines once nothing is added any more.
type Graph struct {
	files  map[string]*File
	layers map[string][]Layer // by the callee's service
}

// NewGraph links files. The error names two that describe the same service.
func NewGraph(files ...*File) (*Graph, error) {
	g := &Graph{files: map[string]*File{}, layers: map[string][]Layer{}}
	for _, f := range files {
		if other := g.files[f.Service]; other != nil {
			return nil, fmt.Errorf("policy: %s and %s both describe the service %s; keep one", other.path, f.path, f.Service)
		}
		g.files[f.Service] = f
	}
	return g, nil
}

// Services returns the files, sorted by service.
func (g *Graph) Services() []*File {
	var files []*File
	for _, name := range sorted(g.files) {
		files = append(files, g.files[name])
	}
	return files
}

// File returns the policy of a service; nil if the graph has none.
func (g *Graph) File(service string) *File { return g.files[service] }

// An Edge is one dependency of one service.
type Edge struct {
	From       *File
	Dependency string // its name there
	To         *File  // the callee's policy; nil if the graph has none
}

// Name returns the callee's name: its service's, or else the dependency's own.
func (e Edge) Name() string {
	if s := e.From.Dependencies[e.Dependency].Service; s != "" {
		return s
	}
	return e.Dependency
}

// Edges returns the dependencies of all services, sorted.
func (g *Graph) Edges() []Edge {
	var edges []Edge
	for _, f := range g.Services() {
		for _, name := range sorted(f.Dependencies) {
			edges = append(edges, g.edge(f, name))
		}
	}
	return edges
}

// edge is a dependency of a file. A store is no service, whatever it is called.
func (g *Graph) edge(f *File, dependency string) Edge {
	e := Edge{From: f, Dependency: dependency}
	if !e.kind().Store() {
		e.To = g.files[e.Name()]
	}
	return e
}

// kind is what is called there.
func (e Edge) kind() Kind { return e.From.Dependencies[e.Dependency].Kind }

// A Layer is something under a dependency's calls that repeats or cuts them by
// itself: a mesh's route, a client library's own configuration.
type Layer struct {
	Position
	// Name says what it is: "Istio VirtualService inventory".
	Name string
	// Service is the callee whose calls go through it.
	Service string
	// Retries is how often it repeats a call; Stated says that its file says so,
	// and that it is not what such a thing does by default.
	Retries int
	Stated  bool
	// Timeout bounds a call there, and PerAttempt one of its attempts. Zero: nothing does.
	Timeout, PerAttempt time.Duration
}

// AddLayers puts layers under the dependencies whose calls go to their services.
func (g *Graph) AddLayers(layers ...Layer) {
	for _, l := range layers {
		g.layers[l.Service] = append(g.layers[l.Service], l)
	}
}

// Layers returns what lies under the calls of an edge: what is for the callee's
// service, then what is for the dependency's own name. Nothing lies under those of a
// store: what a mesh repeats are requests of HTTP.
func (g *Graph) Layers(e Edge) []Layer {
	if e.kind().Store() {
		return nil
	}
	under := slices.Clone(g.layers[e.Name()])
	if e.Name() != e.Dependency {
		under = append(under, g.layers[e.Dependency]...)
	}
	return under
}
