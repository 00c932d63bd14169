package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"path/filepath"
	"slices"

	"github.com/stint-go/stint/policy"
)

// checkedJSON is what stint check -json prints.
type checkedJSON struct {
	Files         int             `json:"files"`
	Findings      []findingJSON   `json:"findings"`
	Amplification []amplifiedJSON `json:"amplification"`
}

type findingJSON struct {
	File    string       `json:"file"`
	Line    int          `json:"line"`
	Column  int          `json:"column"`
	Level   policy.Level `json:"level"`
	Code    string       `json:"code"`
	Service string       `json:"service"`
	Key     string       `json:"key"`
	What    string       `json:"what"`
	Why     string       `json:"why"`
	Do      string       `json:"do"`
}

type amplifiedJSON struct {
	Leaf   string      `json:"leaf"`
	Path   []string    `json:"path"`
	Layers []layerJSON `json:"layers"`
	// Worst and Owned are null where they are unbounded.
	Worst    *float64       `json:"worst"`
	Owned    *float64       `json:"owned"`
	Expected []expectedJSON `json:"expected"`
}

type layerJSON struct {
	Name     string `json:"name"`
	Attempts int    `json:"attempts"`
}

type expectedJSON struct {
	FailureRate float64  `json:"failureRate"`
	Requests    *float64 `json:"requests"`
}

func (c *checking) json() checkedJSON {
	j := checkedJSON{c.files, []findingJSON{}, []amplifiedJSON{}}
	for _, f := range c.findings {
		j.Findings = append(j.Findings, findingJSON{f.File, f.Line, f.Column, f.Level, f.Code, f.Service, f.Key, f.What, f.Why, f.Do})
	}
	for _, a := range c.amplification {
		r := amplifiedJSON{a.Leaf, a.Path, []layerJSON{}, bounded(a.Worst), bounded(a.Owned), []expectedJSON{}}
		for _, l := range a.Layers {
			r.Layers = append(r.Layers, layerJSON(l))
		}
		for i, e := range a.Expected {
			r.Expected = append(r.Expected, expectedJSON{c.rates[i], bounded(e)})
		}
		j.Amplification = append(j.Amplification, r)
	}
	return j
}

// bounded is x, or nil where JSON has no number for it.
func bounded(x float64) *float64 {
	if math.IsInf(x, 1) {
		return nil
	}
	return &x
}

// The parts of SARIF 2.1.0 (OASIS, 2020) that are used.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool              `json:"tool"`
		BaseIDs map[string]sarifBaseID `json:"originalUriBaseIds"`
		Results []sarifResult          `json:"results"`
		Columns string                 `json:"columnKind"`
	}
	sarifBaseID struct {
		Description sarifText `json:"description"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string      `json:"id"`
		Short   sarifText   `json:"shortDescription"`
		Full    sarifText   `json:"fullDescription"`
		Default sarifConfig `json:"defaultConfiguration"`
	}
	sarifConfig struct {
		Level policy.Level `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        policy.Level      `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI  string `json:"uri"`
		Base string `json:"uriBaseId,omitempty"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn"`
	}
)

func (c *checking) sarif() sarifLog {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "stint check"}}, Results: []sarifResult{}, Columns: "unicodeCodePoints",
		BaseIDs: map[string]sarifBaseID{"SRCROOT": {sarifText{"The directory in which stint check ran."}}}}
	rules := policy.Rules()
	for _, r := range rules {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules,
			sarifRule{r.Code, sarifText{r.Title}, sarifText{r.Why}, sarifConfig{r.Level}})
	}
	for _, f := range c.findings {
		where := sarifArtifact{fileURI(f.File), ""}
		if !filepath.IsAbs(f.File) {
			where.Base = "SRCROOT"
		}
		// What stays the same when lines move.
		sum := sha256.Sum256([]byte(f.Code + "\n" + f.Service + "\n" + f.Key))
		run.Results = append(run.Results, sarifResult{
			RuleID:    f.Code,
			RuleIndex: slices.IndexFunc(rules, func(r policy.Rule) bool { return r.Code == f.Code }),
			Level:     f.Level,
			Message:   sarifText{f.What + ". " + f.Why + " " + f.Do},
			Locations: []sarifLocation{{sarifPhysical{where, sarifRegion{max(f.Line, 1), max(f.Column, 1)}}}},
			Fingerprints: map[string]string{
				"stintFinding/v1": hex.EncodeToString(sum[:8]),
			},
		})
	}
	return sarifLog{"https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json", "2.1.0", []sarifRun{run}}
}
