// Package cli is the stint command, with its streams as arguments: what is
// asked for goes to standard output, what people are told beside it to standard
// error.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// Exit codes.
const (
	exitClean  = 0
	exitBroken = 1 // a promise does not hold
	exitFailed = 2 // wrong usage, or it could not be done
)

// A Command is one of the stint command's commands.
type Command struct {
	// Run runs the command when its flags have been parsed; args is what stands
	// behind them. An error is told to the user and makes the exit code 2.
	Run func(ctx context.Context, std *Std, args []string) (exit int, err error)
	// UsageLine is the command with its flags and arguments, from its name on.
	UsageLine string
	// Short is what it does, in a line.
	Short string
	// Long is its help text.
	Long string
	// Flags are the command's own.
	Flags flag.FlagSet
}

// Name returns the command's name.
func (c *Command) Name() string {
	name, _, _ := strings.Cut(c.UsageLine, " ")
	return name
}

// commands returns every command. They are made anew each time, since they hold
// the values of their flags.
func commands() []*Command {
	return []*Command{initCommand(), checkCommand(), explainCommand(), exportCommand(), labCommand(), helpCommand(), versionCommand()}
}

func lookup(name string) *Command {
	for _, c := range commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// Std is what surrounds a command.
type Std struct {
	In       io.Reader
	Out, Err *Output
	// Getenv returns an environment variable, empty if it is not set.
	Getenv func(string) string
	// Dir is where relative paths begin; empty is the process's own directory.
	Dir string
}

// An Output is a stream that remembers the first error of writing to it, so
// that a full disk is noticed without a look at every line.
type Output struct {
	w   io.Writer
	err error
}

// Write writes p, or returns the first error.
func (o *Output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	var n int
	n, o.err = o.w.Write(p)
	return n, o.err
}

// Run runs the stint command and returns its exit code: 0 if all is well, 1 if
// a promise does not hold, 2 for wrong usage or a failure. When ctx ends the
// command gives up, and cleans up before it returns.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(ctx, args, &Std{stdin, &Output{w: stdout}, &Output{w: stderr}, os.Getenv, ""})
}

func run(ctx context.Context, args []string, std *Std) int {
	if len(args) == 0 {
		usage(std.Err)
		return exitFailed
	}
	name, args := args[0], args[1:]
	switch name {
	case "-h", "-help", "--help":
		name = "help"
	case "-version", "--version":
		name = "version"
	}
	cmd := lookup(name)
	if cmd == nil {
		fmt.Fprintf(std.Err, "stint: unknown command %q: want one of %s; see \"stint help\"\n", name, names())
		return exitFailed
	}
	cmd.Flags.Init(name, flag.ContinueOnError)
	cmd.Flags.SetOutput(io.Discard) // its own messages come without what would be right
	exit := exitClean
	args, err := parse(&cmd.Flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		err = nil
		cmd.help(std.Out)
	case err != nil:
		fmt.Fprintf(std.Err, "stint %s: %v\n\n", name, err)
		cmd.usage(std.Err)
		return exitFailed
	default:
		exit, err = cmd.Run(ctx, std, args)
	}
	if err == nil && std.Out.err != nil {
		err = fmt.Errorf("could not write the output: %w", std.Out.err)
	}
	if err != nil {
		fmt.Fprintf(std.Err, "stint %s: %v\n", name, err)
		return exitFailed
	}
	return exit
}

// parse parses flags and returns the arguments. Package flag stops at the first
// argument; here flags may stand behind it as well, until "--".
func parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		left := flags.Args()
		if n := len(args) - len(left); len(left) == 0 || n > 0 && args[n-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// unexpected is the error of a command that takes no arguments but got some.
func unexpected(args []string) error {
	return fmt.Errorf("unexpected argument %q: it takes flags only", args[0])
}

func names() string {
	var all []string
	for _, c := range commands() {
		all = append(all, c.Name())
	}
	return strings.Join(all, ", ")
}
