package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
)

func helpCommand() *Command {
	cmd := &Command{
		UsageLine: "help [-json] [command]",
		Short:     "say what a command does",
		Long: `Help says what stint does or, with the name of a command, what that command
does and which flags it has.
`,
	}
	asJSON := cmd.Flags.Bool("json", false, "print the commands and their flags as a JSON array")
	cmd.Run = func(_ context.Context, std *Std, args []string) (int, error) {
		if len(args) > 1 {
			return exitFailed, fmt.Errorf("%d arguments: want the name of one command, or none for the list", len(args))
		}
		about := commands()
		if len(args) == 1 {
			c := lookup(args[0])
			if c == nil {
				return exitFailed, fmt.Errorf("unknown command %q: want one of %s", args[0], names())
			}
			about = []*Command{c}
		}
		switch {
		case *asJSON:
			return exitClean, helpJSON(std.Out, about)
		case len(args) == 1:
			about[0].help(std.Out)
		default:
			usage(std.Out)
		}
		return exitClean, nil
	}
	return cmd
}

// usage writes what the stint command is, and its commands.
func usage(w io.Writer) {
	fmt.Fprint(w, `Stint makes deadlines, retries and load one contract between services.

usage: stint <command> [flags]

The commands are:

`)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-9s %s\n", c.Name(), c.Short)
	}
	fmt.Fprint(w, `
"stint help <command>" says more about one of them. The exit code is 0 if all is
well, 1 if a promise does not hold, 2 for wrong usage or a failure.
`)
}

// help writes all about the command.
func (c *Command) help(w io.Writer) {
	fmt.Fprintf(w, "usage: stint %s\n\n%s", c.UsageLine, c.Long)
	if c.hasFlags() {
		fmt.Fprint(w, "\nThe flags are:\n\n")
		c.printFlags(w)
	}
}

// usage writes how the command is called.
func (c *Command) usage(w io.Writer) {
	fmt.Fprintf(w, "usage: stint %s\n", c.UsageLine)
	c.printFlags(w)
}

func (c *Command) hasFlags() (has bool) {
	c.Flags.VisitAll(func(*flag.Flag) { has = true })
	return has
}

func (c *Command) printFlags(w io.Writer) {
	c.Flags.SetOutput(w)
	c.Flags.PrintDefaults()
}

func helpJSON(w io.Writer, about []*Command) error {
	type flagHelp struct {
		Name    string `json:"name"`
		Default string `json:"default"`
		Usage   string `json:"usage"`
	}
	type commandHelp struct {
		Name  string     `json:"name"`
		Usage string     `json:"usage"`
		Short string     `json:"short"`
		Long  string     `json:"long"`
		Flags []flagHelp `json:"flags"`
	}
	var all []commandHelp
	for _, c := range about {
		h := commandHelp{c.Name(), "stint " + c.UsageLine, c.Short, c.Long, []flagHelp{}}
		c.Flags.VisitAll(func(f *flag.Flag) { h.Flags = append(h.Flags, flagHelp{f.Name, f.DefValue, f.Usage}) })
		all = append(all, h)
	}
	return writeJSON(w, all)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
