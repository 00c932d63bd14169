package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

func versionCommand() *Command {
	cmd := &Command{
		UsageLine: "version [-json]",
		Short:     "say which version this is",
		Long: `Version prints the version of the command, as the go command recorded it when it
built it: of a checkout the commit, and whether files were changed.
`,
	}
	asJSON := cmd.Flags.Bool("json", false, "print the version as a JSON object")
	cmd.Run = func(_ context.Context, std *Std, args []string) (int, error) {
		if len(args) > 0 {
			return exitFailed, unexpected(args)
		}
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return exitFailed, errors.New("this binary was built without module information: build it with the go command")
		}
		v := versionOf(info)
		if *asJSON {
			return exitClean, writeJSON(std.Out, v)
		}
		_, err := fmt.Fprintln(std.Out, v)
		return exitClean, err
	}
	return cmd
}

// A version is what the go command recorded of a build.
type version struct {
	Module   string `json:"module"`
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Revision is the commit, Modified whether files were changed after it;
	// both only for a build in a checkout.
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
}

func versionOf(info *debug.BuildInfo) version {
	v := version{Module: info.Main.Path, Version: info.Main.Version, Go: info.GoVersion}
	if v.Version == "" {
		v.Version = "(devel)" // a test's, which has none
	}
	var goos, goarch string
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			goos = s.Value
		case "GOARCH":
			goarch = s.Value
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	v.Platform = goos + "/" + goarch
	return v
}

func (v version) String() string {
	s := "stint " + v.Version
	if v.Revision != "" {
		s += " (commit " + v.Revision[:min(12, len(v.Revision))]
		if v.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return s + " " + v.Go + " " + v.Platform
}
