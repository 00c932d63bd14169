// Package policy reads a service's policy: one YAML file per service in which
// the numbers stand, instead of all over its code. Load is strict; File gives
// ready Callers and a Gate; Watch keeps them in line with the file while the
// service runs; Graph.Check holds the files of all services against each other.
//
// docs/policy.md describes the format, schema.json is the same for editors.
package policy
