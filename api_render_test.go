package stint_test

import (
	"strings"
	"testing"
)

func TestAPIRender(t *testing.T) {
	const source = `// Package stint is one.
package stint

import "time"

// Group.
const (
	A Reason = iota + 1 // one
	b
	C
)

const D = 2 * time.Second

const (
	E Flag = 1 << iota
	F
	G = time.Duration(iota)
)

var (
	ErrOne = errors.New("one") // no part of the surface
	Zero, other = Reason(0), 1
	Default = &Options{Wait: 1}
	All []Reason = nil
)

// Reason is one.
type (
	Reason uint8
	hidden struct{ X int }
)

// Options are many.
type Options struct {
	// Wait is a time.
	Wait, Limit time.Duration ` + "`json:\"wait\"`" + `

	secret int
	*Embedded
	hidden
	On struct { In int; out int }
}

type Embedded struct {}

type Sealed interface {
	error
	Do(ctx context.Context) error // doc
	sealed()
}

type Number interface{ ~int | ~uint }

type Pair[K comparable, V any] struct { Key K; v V }

type Func func(a int) error

type Same = Reason

func (p *Pair[K, V]) Value() V { return p.v }
func (o Options) With(
	wait time.Duration,
	limit time.Duration, // both
) Options { return o }
func (o Options) private() {}
func (hidden) Shown() {}
func New[T any](t T, more ...int) (out *Options, err error) { return nil, nil }
func Call(f func(a, b int) error) {}
func private() {}
`
	const want = `What the released modules export. Written by make api; do not edit.

# github.com/stint-go/stint

const A Reason = 1
const C Reason = 3
const D = 2 * time.Second
const E Flag = 1
const F Flag = 2
const G = time.Duration(2)
var All []Reason
var Default *Options
var ErrOne error
var Zero
func Call(f func(a, b int) error)
func New[T any](t T, more ...int) (out *Options, err error)
type Embedded struct{}
type Func func(a int) error
type Number interface{ ~int | ~uint }
type Options struct {
	Wait, Limit time.Duration ` + "`json:\"wait\"`" + `
	*Embedded
	On struct{ In int }
}
func (Options) With(wait time.Duration, limit time.Duration) Options
type Pair[K comparable, V any] struct{ Key K }
func (*Pair[K, V]) Value() V
type Reason uint8
type Same = Reason
type Sealed interface {
	error
	Do(ctx context.Context) error
	(unexported methods)
}

# github.com/stint-go/stint/stinthttp


# github.com/stint-go/stint/stinttest

`
	tree := repoFixture(map[string]string{
		"stint.go":                  source,
		"a_test.go":                 "package stint\nfunc Tested() {}\n",
		"internal/x/x.go":           "package x\nfunc X() {}\n",
		"cmd/stint/main.go":         "package main\nfunc X() {}\n",
		"internal/tools/sub/sub.go": "package sub\nfunc X() {}\n",
	})
	have, err := apiRender(tree)
	if err != nil {
		t.Fatal(err)
	}
	if have != want {
		t.Errorf("have:\n%s\nwant:\n%s\n%s", have, want, apiDiff(have, want))
	}
}

func TestAPIDiffShowsTheFirstLines(t *testing.T) {
	if diff := apiDiff("a\nb\n", "a\nb\n"); diff != "" {
		t.Errorf("same text: want no difference, have %q", diff)
	}
	for _, c := range []struct{ have, file, first string }{
		{"a\nnew\nc\n", "a\nold\nc\n", "- old\n- c\n- \n+ new\n"},
		{"a\nnew\n", "", "- \n+ a\n+ new\n"},
		{"a\n", "a\nold\n", "- old\n- \n+ \n"},
	} {
		diff := apiDiff(c.have, c.file)
		for _, want := range []string{"make api", apiFile, "line ", c.first} {
			if !strings.Contains(diff, want) {
				t.Errorf("want %q in %q", want, diff)
			}
		}
	}
}
