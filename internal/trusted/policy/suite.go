package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Case is one expectation about a set; docs/spec/policy.md describes the files
// that hold them.
type Case struct {
	File    string
	Line    int
	Name    string
	Request Request
	Allow   bool
	Rules   []string // IDs of the deciding rules in any order; nil: not looked at
}

// CaseResult is what became of one Case.
type CaseResult struct {
	Case
	Got     Explanation
	Failure string // empty: passed
}

// RunTests decides every case. Pure: no clock, no files.
func RunTests(s *Set, cases []Case) []CaseResult {
	out := make([]CaseResult, len(cases))
	for i, c := range cases {
		got := s.Explain(c.Request)
		out[i] = CaseResult{Case: c, Got: got, Failure: c.failure(got)}
	}
	return out
}

func (c *Case) failure(got Explanation) string {
	if got.Allow != c.Allow {
		f := fmt.Sprintf("want %s, got %s", verdict(c.Allow), verdict(got.Allow))
		if len(got.Errors) > 0 {
			f += ": " + strings.Join(got.Errors, "; ")
		}
		return f
	}
	if c.Rules == nil {
		return ""
	}
	ids := make([]string, 0, len(got.Rules))
	for _, r := range got.Rules {
		ids = append(ids, r.ID)
	}
	want := slices.Clone(c.Rules)
	slices.Sort(ids)
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		return fmt.Sprintf("want deciding rules [%s], got [%s]", strings.Join(want, " "), strings.Join(ids, " "))
	}
	return ""
}

func verdict(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}
