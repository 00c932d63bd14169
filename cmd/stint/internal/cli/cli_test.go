package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint/cmd/stint/internal/lab"
	"rsc.io/script"
	"rsc.io/script/scripttest"
)

// TestScript runs the scripts in testdata/script. Beside the usual commands they
// have:
//
//	stint ARG...      the command, in this process; a code but 0 is a failure
//	stint-tty ARG...  the same with terminals for its outputs
//	status N          the last one's exit code was N
//	columns N         no line of the last one's standard output is longer
func TestScript(t *testing.T) {
	engine := script.NewEngine()
	engine.Cmds = scripttest.DefaultCmds()
	engine.Conds = scripttest.DefaultConds()
	engine.Cmds["stint"] = stintCmd(func(w io.Writer) io.Writer { return w })
	engine.Cmds["stint-tty"] = stintCmd(func(w io.Writer) io.Writer { return device{w, fs.ModeDevice | fs.ModeCharDevice} })
	engine.Cmds["status"] = script.Command(script.CmdUsage{Summary: "compare the last exit code", Args: "N"},
		func(s *script.State, args ...string) (script.WaitFunc, error) {
			if code, _ := s.LookupEnv("STATUS"); len(args) != 1 || code != args[0] {
				return nil, fmt.Errorf("the exit code was %s, want %v", code, args)
			}
			return nil, nil
		})
	engine.Cmds["columns"] = script.Command(script.CmdUsage{Summary: "bound the length of the output's lines", Args: "N"},
		func(s *script.State, args ...string) (script.WaitFunc, error) {
			most, err := strconv.Atoi(strings.Join(args, " "))
			for line := range strings.Lines(s.Stdout()) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > most {
					err = errors.Join(err, fmt.Errorf("%d columns: %q", n, line))
				}
			}
			return nil, err
		})
	scripttest.Test(t, t.Context(), engine, nil, filepath.Join("testdata", "script", "*.txtar"))
}

func stintCmd(stream func(io.Writer) io.Writer) script.Cmd {
	return script.Command(script.CmdUsage{Summary: "run stint", Args: "arg..."},
		func(s *script.State, args ...string) (script.WaitFunc, error) {
			getenv := func(name string) string { v, _ := s.LookupEnv(name); return v }
			var out, err bytes.Buffer
			code := run(s.Context(), args, &Std{strings.NewReader(""), &Output{w: stream(&out)}, &Output{w: stream(&err)}, getenv, s.Getwd()})
			if err := s.Setenv("STATUS", strconv.Itoa(code)); err != nil {
				return nil, err
			}
			return func(*script.State) (string, string, error) {
				if code != 0 {
					return out.String(), err.String(), fmt.Errorf("exit code %d", code)
				}
				return out.String(), err.String(), nil
			}, nil
		})
}

// device is a file of some type.
type device struct {
	io.Writer
	mode fs.FileMode
}

func (d device) Stat() (fs.FileInfo, error) { return info{mode: d.mode}, nil }

type info struct {
	fs.FileInfo
	mode fs.FileMode
}

func (i info) Mode() fs.FileMode { return i.mode }

func std(out io.Writer, env map[string]string) *Std {
	return &Std{strings.NewReader(""), &Output{w: out}, &Output{w: io.Discard}, func(name string) string { return env[name] }, ""}
}

func TestColor(t *testing.T) {
	tty := device{io.Discard, fs.ModeDevice | fs.ModeCharDevice}
	for _, c := range []struct {
		name string
		out  io.Writer
		env  map[string]string
		want bool
	}{
		{"a terminal", tty, nil, true},
		{"a terminal, NO_COLOR empty", tty, map[string]string{"NO_COLOR": ""}, true},
		{"a terminal, NO_COLOR set", tty, map[string]string{"NO_COLOR": "0"}, false},
		{"a dumb terminal", tty, map[string]string{"TERM": "dumb"}, false},
		{"a file", device{io.Discard, 0}, nil, false},
		{"a pipe", device{io.Discard, fs.ModeNamedPipe}, nil, false},
		{"a buffer", new(bytes.Buffer), nil, false},
	} {
		if have := std(c.out, c.env).color(); have != c.want {
			t.Errorf("%s: colours %v, want %v", c.name, have, c.want)
		}
	}
}

// full is a writer that takes only so many bytes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

// Output that could not be written is a failure, whatever came out.
func TestFullDisk(t *testing.T) {
	for _, args := range []string{"lab -only multiply", "lab -only multiply -json", "help", "help lab", "help -json", "version", "lab -h",
		"init -o -", "check testdata/orders.yaml", "check -json testdata/orders.yaml", "check -sarif testdata/orders.yaml", "check -review testdata/orders.yaml",
		"explain testdata/orders.yaml inventory -remaining 1s -outcome 503", "export -to istio testdata/orders.yaml"} {
		for _, space := range []int{0, 5} {
			var stderr bytes.Buffer
			code := Run(t.Context(), strings.Fields(args), nil, &full{space}, &stderr)
			if code != exitFailed || !strings.Contains(stderr.String(), "no space left") {
				t.Errorf("stint %s, %d bytes of space: exit code %d, standard error %q", args, space, code, &stderr)
			}
		}
	}
}

// A row that does not hold makes the exit code 1, in both forms of output.
func TestBroken(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		for _, holds := range []bool{false, true} {
			run := func(_ context.Context, _ lab.Options, _ func(string, string), done func(lab.Report) error) error {
				return errors.Join(done(lab.Report{Results: []lab.Result{{Holds: true}}}), done(lab.Report{Results: []lab.Result{{Holds: holds}}}))
			}
			var out bytes.Buffer
			code, err := runLab(t.Context(), std(&out, nil), lab.DefaultOptions(), asJSON, lab.Style{}, run)
			want, text := exitBroken, "BROKEN: 1 of 2 rows"
			if holds {
				want, text = exitClean, "ok: all 2 rows"
			}
			if asJSON {
				text = fmt.Sprintf(`"holds":%v`, holds)
			}
			if code != want || err != nil || !strings.Contains(out.String(), text) {
				t.Errorf("JSON %v, the second row holds %v: exit code %d, error %v, want %d and %q in:\n%s", asJSON, holds, code, err, want, text, &out)
			}
		}
	}
}

// hook is a writer that calls a function when it is written to.
type hook func()

func (h hook) Write(p []byte) (int, error) { h(); return len(p), nil }

// An interrupted run says so, prints no half of a JSON array, and is over soon.
func TestInterrupted(t *testing.T) {
	for _, args := range []string{"lab -only deadline", "lab -json"} {
		ctx, cancel := context.WithCancel(t.Context())
		var stdout, stderr bytes.Buffer
		progress := device{io.MultiWriter(&stderr, hook(cancel)), fs.ModeCharDevice}
		code := Run(ctx, strings.Fields(args), nil, &stdout, progress)
		if code != exitFailed || !strings.HasSuffix(stderr.String(), "\r\x1b[Kstint lab: interrupted\n") {
			t.Errorf("stint %s: exit code %d, standard error %q", args, code, &stderr)
		}
		if strings.Contains(args, "json") && stdout.Len() > 0 {
			t.Errorf("stint %s: prints %q", args, &stdout)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	var stderr bytes.Buffer
	if code := Run(ctx, []string{"lab"}, nil, io.Discard, &stderr); code != exitFailed || strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("a deadline: exit code %d, standard error %q", code, &stderr)
	}
}

func TestVersion(t *testing.T) {
	build := func(version string, settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Path: "example.org/stint", Version: version}}
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	platform := []string{"GOOS", "plan9", "GOARCH", "mips"}
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{build("v1.2.3", platform...), "stint v1.2.3 go1.26.0 plan9/mips"},
		{build("", platform...), "stint (devel) go1.26.0 plan9/mips"},
		{build("(devel)", append(platform, "vcs.revision", "0123456789abcdef", "vcs.modified", "false")...),
			"stint (devel) (commit 0123456789ab) go1.26.0 plan9/mips"},
		{build("(devel)", append(platform, "vcs.revision", "0123", "vcs.modified", "true")...),
			"stint (devel) (commit 0123, modified) go1.26.0 plan9/mips"},
	} {
		if have := versionOf(c.info).String(); have != c.want {
			t.Errorf("%q, want %q", have, c.want)
		}
	}
}

// Every command is complete, and its help fits a terminal.
func TestCommands(t *testing.T) {
	for _, c := range commands() {
		if c.Run == nil || c.Short == "" || !strings.HasSuffix(c.Long, "\n") || lookup(c.Name()) == nil {
			t.Errorf("%q: incomplete", c.UsageLine)
		}
		var b strings.Builder
		c.help(&b)
		for line := range strings.Lines(b.String()) {
			line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "    \t", "        ")
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("help %s: %d columns: %s", c.Name(), n, line)
			}
		}
		if c.Flags.Lookup("json") == nil || !strings.Contains(c.UsageLine, "-json") {
			t.Errorf("%s: has no flag -json", c.Name())
		}
	}
}

// Each command and each kind of wrong use has a script.
func TestScriptsComplete(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(strings.TrimPrefix(line, "! "))
			if len(f) > 1 && f[0] == "stint" {
				used[f[1]] = true
			}
		}
	}
	for _, c := range commands() {
		if !used[c.Name()] {
			t.Errorf("no script runs stint %s, only %v", c.Name(), slices.Sorted(maps.Keys(used)))
		}
	}
}

// The help names every experiment.
func TestHelpNamesExperiments(t *testing.T) {
	for _, name := range lab.Names(lab.HTTP) {
		if !strings.Contains(labCommand().Long, "\n  "+name+" ") {
			t.Errorf("help lab says nothing of %s", name)
		}
	}
}
