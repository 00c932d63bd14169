package stinthttp

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/stint-go/stint"
)

// RouteOp returns a Transport.Op that names requests by their route: RequestOp with the name replaced by the pattern that matches
// the request's method and path, in the syntax of http.ServeMux and by its
// precedence ("GET /orders/{id}", "/search/"). What no pattern matches keeps the
// method as its name. The host counts only for patterns that have one.
//
// A path that ServeMux would redirect ("/search" under "/search/", "//search/")
// matches no pattern. The request is not changed. The function may be called at the
// same time. The error names a pattern that can't be read, or that conflicts with
// another.
func RouteOp(patterns ...string) (func(*http.Request) stint.Op, error) {
	var rs routes
	for _, p := range patterns {
		if err := rs.add(p, nil); err != nil {
			return nil, err
		}
	}
	return func(r *http.Request) stint.Op {
		op := RequestOp(r)
		if found := rs.match(sentRequest(r)); found != nil {
			op.Name = found.pattern
		}
		return op
	}, nil
}

// Routes puts next behind several Gates: a request that matches a pattern of views
// (method and path, as RouteOp matches them) comes in by that pattern's Gate, and
// any other by g, each as with Handler. The views are made of g (Gate.With, WithTrust,
// LongRunning, Exempt), so that one door and one drain hold for all. The request
// reaches next as it came: a mux there matches it anew. The error names a pattern
// that can't be read, or conflicts with another, or has no Gate.
//
// Use the result in place of Handler's, not inside or around one: with NewServer,
// set it as the http.Server's Handler.
func Routes(g *stint.Gate, views map[string]*stint.Gate, next http.Handler) (http.Handler, error) {
	if g == nil || next == nil {
		return nil, fmt.Errorf("stinthttp: Routes needs a Gate and a handler for requests that match no pattern")
	}
	var rs routes
	for _, p := range slices.Sorted(maps.Keys(views)) {
		if views[p] == nil {
			return nil, fmt.Errorf("stinthttp: the pattern %q has no Gate: must be a view of the one for the other requests", p)
		}
		if err := rs.add(p, Handler(views[p], next)); err != nil {
			return nil, err
		}
	}
	others := Handler(g, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if found := rs.match(r); found != nil {
			found.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	}), nil
}

// routes finds patterns by http.ServeMux's rules. What it finds is known by its
// type: the mux has handlers of its own, for redirects and refusals.
type routes struct{ mux http.ServeMux }

type route struct {
	http.Handler
	pattern string
}

// registeredAt is where ServeMux says that a pattern is from: a line of this file.
var registeredAt = regexp.MustCompile(` \(registered at [^()]*:\d+\)`)

// add adds a pattern. ServeMux says by a panic what is wrong with it.
func (rs *routes) add(pattern string, h http.Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("stinthttp: pattern %q: %s", pattern, registeredAt.ReplaceAllString(fmt.Sprint(p), ""))
		}
	}()
	rs.mux.Handle(pattern, &route{h, pattern})
	return nil
}

// match returns the route of a request, or nil.
func (rs *routes) match(r *http.Request) *route {
	h, _ := rs.mux.Handler(r)
	found, _ := h.(*route)
	return found
}

// sentRequest returns what of a client's request its server will see.
func sentRequest(r *http.Request) *http.Request {
	if r.URL != nil && r.URL.Path != "" && r.Host != "" && r.Method != "" {
		return r
	}
	sent := &http.Request{Method: r.Method, Host: r.Host, URL: r.URL}
	if sent.Method == "" {
		sent.Method = http.MethodGet
	}
	if sent.URL == nil {
		sent.URL = new(url.URL)
	}
	if sent.Host == "" {
		sent.Host = sent.URL.Host
	}
	if sent.URL.Path == "" && sent.URL.Opaque == "" {
		u := *sent.URL
		u.Path = "/"
		sent.URL = &u
	}
	return sent
}
