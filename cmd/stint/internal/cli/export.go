package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint/cmd/stint/internal/term"
	"github.com/stint-go/stint/policy/emit"
)

func exportCommand() *Command {
	cmd := &Command{
		UsageLine: "export -to TARGET [-o FILE] [-strict] [-json] FILE",
		Short:     "write a policy file for gRPC or a mesh",
		Long: `Export writes what a policy file says of its dependencies in the words of
something else that carries calls. The targets are:

  grpc     a gRPC service config
  envoy    routes and clusters of Envoy
  istio    VirtualServices and DestinationRules of Istio
  gateway  HTTPRoutes of the Gateway API

No two of them can say the same, so for each key that the file sets, and each
default that matters, it tells on standard error whether it is

  exact        it does there what it does here
  approximate  it does something near
  lost         nothing stands for it

with what is different there, and what can be done about it. Who exports to a
mesh has the mesh repeat calls instead of the library: not both.

With -strict the exit code is 1 if anything is approximate or lost. The document
is written all the same.
`,
	}
	to := cmd.Flags.String("to", "", "write for `TARGET`: "+targets(", ")+"; required")
	out := cmd.Flags.String("o", "", "write the document to this new `FILE`, not to standard output")
	strict := cmd.Flags.Bool("strict", false, "exit with 1 if anything is approximate or lost")
	asJSON := cmd.Flags.Bool("json", false, "print document and table as a JSON object")
	cmd.Run = func(_ context.Context, std *Std, args []string) (int, error) {
		switch {
		case *to == "":
			return exitFailed, fmt.Errorf("-to is missing: want one of %s", targets(", "))
		case !slices.Contains(emit.Targets(), emit.Target(*to)):
			return exitFailed, fmt.Errorf("-to is %q: want one of %s", *to, targets(", "))
		case len(args) != 1:
			return exitFailed, fmt.Errorf("%s: want one policy file", plural(len(args), "argument", "arguments"))
		case *asJSON && *out != "":
			return exitFailed, errors.New("-json has the document in it: leave -o out")
		}
		file, err := std.load(args[0])
		if err != nil {
			return exitFailed, err
		}
		doc, err := emit.Emit(emit.Target(*to), file)
		if err != nil {
			return exitFailed, err
		}
		switch {
		case *asJSON:
			err = writeJSON(std.Out, exportJSON(doc))
		case *out != "":
			err = std.writeNew(*out, doc.Body)
		default:
			_, err = std.Out.Write(doc.Body)
		}
		if err != nil {
			return exitFailed, err
		}
		if !*asJSON {
			exportTable(std, doc)
		}
		if *strict && len(doc.Losses()) > 0 {
			return exitBroken, nil
		}
		return exitClean, nil
	}
	return cmd
}

func targets(separator string) string {
	var names []string
	for _, t := range emit.Targets() {
		names = append(names, string(t))
	}
	return strings.Join(names, separator)
}

// exportTable tells people what became of each key. Exact ones take a line.
func exportTable(std *Std, doc *emit.Document) {
	columns := std.columnsOf(std.Err)
	counts := map[emit.Fidelity]int{}
	for _, r := range doc.Rows {
		counts[r.Fidelity]++
		fmt.Fprint(std.Err, term.Hang("", "    ", fmt.Sprintf("%s: %s: %s", r.Position, r.Fidelity, r.Key), columns))
		if r.Fidelity == emit.Exact {
			continue
		}
		fmt.Fprint(std.Err, term.Wrap("    ", r.Code+": "+r.Text, columns))
		if r.Instead != "" {
			fmt.Fprint(std.Err, term.Wrap("    instead: ", r.Instead, columns))
		}
	}
	fmt.Fprintf(std.Err, "%s for %s: %d exact, %d approximate, %d lost\n", plural(len(doc.Rows), "key", "keys"), doc.Target,
		counts[emit.Exact], counts[emit.Approximate], counts[emit.Lost])
}

// exportedJSON is what stint export -json prints.
type exportedJSON struct {
	Target   emit.Target   `json:"target"`
	Document string        `json:"document"`
	Rows     []exportedRow `json:"rows"`
}

type exportedRow struct {
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Column   int           `json:"column"`
	Key      string        `json:"key"`
	Fidelity emit.Fidelity `json:"fidelity"`
	Code     string        `json:"code,omitempty"`
	Text     string        `json:"text"`
	Instead  string        `json:"instead,omitempty"`
}

func exportJSON(doc *emit.Document) exportedJSON {
	j := exportedJSON{doc.Target, string(doc.Body), []exportedRow{}}
	for _, r := range doc.Rows {
		j.Rows = append(j.Rows, exportedRow{r.File, r.Line, r.Column, r.Key, r.Fidelity, r.Code, r.Text, r.Instead})
	}
	return j
}
