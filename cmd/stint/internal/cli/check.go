package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint/policy"
)

func checkCommand() *Command {
	cmd := &Command{
		UsageLine: "check [-json | -sarif | -review] [-graph FILE] [flags] FILE...",
		Short:     "hold policy files against the rules, and each other",
		Long: `Check reads the policy files of services that call each other, and says what in
them will hurt: deadlines that don't add up, layers whose retries multiply,
calls that nothing bounds, retries that nobody asked for. Of a directory it
reads all *.yaml and *.yml below it. What a mesh does by itself counts too: it
reads gRPC service configs, Istio VirtualServices and Envoy routes.

Each finding has its place, why it hurts, and what would be right. Behind them
it shows how many requests may reach each service that calls nothing, for one
at the top, and of a single file how its deadline is spent. In a file, a comment
"# stint:ignore CODE: REASON" accepts a finding in its line or the next one.

The exit code is 0 without findings, 1 with some, and 2 if a file can't be read;
then nothing is checked, since what is missing would be found missing.
`,
	}
	c := &checking{rates: []float64{0.99, 0.9}}
	f := &cmd.Flags
	asJSON := f.Bool("json", false, "print findings and amplification as a JSON object")
	asSARIF := f.Bool("sarif", false, "print the findings as SARIF 2.1.0, for code hosts and editors")
	review := f.Bool("review", false, "answer review questions from the files, instead of checking them")
	picture := f.String("graph", "", "write a picture of the calls to `FILE`, an .svg or .html")
	waterfall := f.String("waterfall", "", "show how this `SERVICE` spends its deadline")
	f.Func("failure", "expect shares of attempts to fail, `RATES` up to 1 (default 0.99,0.9)", func(s string) error {
		c.rates = nil
		for part := range strings.SplitSeq(s, ",") {
			p, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
			if err != nil || !(p > 0 && p <= 1) {
				return errors.New("want numbers above 0 and up to 1, separated by commas")
			}
			c.rates = append(c.rates, p)
		}
		if len(c.rates) > mostRates {
			return fmt.Errorf("want %d rates at most", mostRates)
		}
		return nil
	})
	cmd.Run = func(_ context.Context, std *Std, args []string) (int, error) {
		forms := 0
		for _, on := range []bool{*asJSON, *asSARIF, *review} {
			if on {
				forms++
			}
		}
		switch ext := strings.ToLower(filepath.Ext(*picture)); {
		case len(args) == 0:
			return exitFailed, errors.New("no files: want policy files, or directories that hold some")
		case forms > 1:
			return exitFailed, errors.New("-json, -sarif and -review are forms of the output: choose one")
		case *waterfall != "" && forms > 0:
			return exitFailed, errors.New("-waterfall belongs to the output for people: leave -json, -sarif and -review out")
		case *picture != "" && ext != ".svg" && ext != ".html":
			return exitFailed, fmt.Errorf("-graph is %q: want a name that ends in .svg or .html", *picture)
		}
		if err := c.load(std, args); err != nil {
			for e := range strings.Lines(err.Error() + "\n") {
				fmt.Fprint(std.Err, e)
			}
			return exitFailed, nil
		}
		if *waterfall != "" && c.graph.File(*waterfall) == nil {
			return exitFailed, fmt.Errorf("-waterfall is %q: want one of %s", *waterfall, strings.Join(c.services(), ", "))
		}
		c.findings = c.graph.Check(&policy.CheckOptions{FailureRates: c.rates})
		c.amplification = c.graph.Amplification(c.rates...)
		if *picture != "" {
			if err := c.draw(std, *picture); err != nil {
				return exitFailed, err
			}
			fmt.Fprintf(std.Err, "%s written\n", *picture)
		}
		var err error
		switch {
		case *review:
			c.review(std)
			return exitClean, nil
		case *asJSON:
			err = writeJSON(std.Out, c.json())
		case *asSARIF:
			err = writeJSON(std.Out, c.sarif())
		default:
			c.text(std, *waterfall)
		}
		if len(c.findings) > 0 {
			return exitBroken, err
		}
		return exitClean, err
	}
	return cmd
}

// mostRates is how many the table has columns for.
const mostRates = 3

// checking is one run of stint check.
type checking struct {
	rates         []float64
	files         int
	graph         *policy.Graph
	findings      []policy.Finding
	amplification []policy.Amplification
}

func (c *checking) services() (names []string) {
	for _, f := range c.graph.Services() {
		names = append(names, f.Service)
	}
	return names
}

// errors is how many findings are errors.
func (c *checking) errors() (n int) {
	for _, f := range c.findings {
		if f.Level == policy.Error {
			n++
		}
	}
	return n
}

// load reads all files, or reports all that is wrong with them.
func (c *checking) load(std *Std, args []string) error {
	paths, bad := std.files(args)
	var files []*policy.File
	var layers []policy.Layer
	for _, path := range paths {
		data, err := std.read(path)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		file, under, err := parsed(path, data)
		switch {
		case err != nil:
			bad = append(bad, err)
		case file != nil:
			files = append(files, file)
		}
		layers = append(layers, under...)
	}
	if len(bad) == 0 && len(files)+len(layers) == 0 {
		bad = append(bad, fmt.Errorf("%s: no policy files here; \"stint init\" writes one to begin with", strings.Join(args, ", ")))
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	c.files = len(paths)
	var err error
	if c.graph, err = policy.NewGraph(files...); err != nil {
		return err
	}
	c.graph.AddLayers(layers...)
	return nil
}

// about returns the findings about a dependency of a service, or those about the
// service itself where dependency is empty.
func (c *checking) about(service, dependency string) (found []policy.Finding) {
	for _, f := range c.findings {
		if f.Service == service && dependencyOf(f.Key, c.graph.File(service)) == dependency {
			found = append(found, f)
		}
	}
	return slices.Clip(found)
}
