// Package policy decides whether a call is allowed, by Cedar policies.
//
// State owned: none; a *Set is immutable after Compile and safe for concurrent
// use. Imports: cedar-go, go-json-experiment/json/jsontext. Imported by: the
// gate, and by control rooms that check, test, explain and format policies.
// Lock order: no locks. Invariants: INV-02 (what no permit matches is denied; an
// error while deciding is a denial), a forbid wins, the same request gets the
// same decision from the same revision, and the index changes no decision.
// Format: docs/spec/policy.md. Tests: *_test.go here, FuzzCompile, FuzzArgs,
// FuzzFmt; test-file syntax is in internal/control/policytest.
// Spec: AOS-08, INV-02.
package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// Limits of what Compile accepts.
const (
	MaxFiles        = 256     // sources in one set
	MaxFileBytes    = 1 << 20 // bytes in one source
	MaxPolicies     = 10_000  // policies in one set
	MaxPolicyTokens = 16_384  // tokens in one policy: bounds the parser's recursion
	MaxNesting      = 64      // brackets within brackets in one policy
	MaxProblems     = 1000    // problems reported of one set
)

// Source is one policy file.
type Source struct {
	Name string // as shown in problems and rules
	Text []byte
}

// Severity of a Problem.
type Severity string

// The severities. A set with an error isn't used; a warning is only shown.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is something that Compile found wrong.
type Problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`   // from 1; 0 when it is about the whole file
	Column   int      `json:"column"` // from 1, in characters
	Policy   string   `json:"policy,omitempty"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
}

// String renders "file:line:column: severity: policy "id": message".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	fmt.Fprintf(&b, ": %s: ", p.Severity)
	if p.Policy != "" {
		fmt.Fprintf(&b, "policy %q: ", p.Policy)
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems is everything found, in the order of the sources. As an error it has
// at least one Problem of severity Error.
type Problems []Problem

// Error renders one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) failed() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Severity == Error })
}

// Set is a compiled policy set. A nil Set denies everything.
type Set struct {
	rules    []rule // in file order
	byID     map[cedar.PolicyID]int
	index    index
	revision string
	warnings Problems
}

// rule is one policy with what is shown of it.
type rule struct {
	Rule
	policy      *cedar.Policy
	indexed     *cedar.Policy // what is evaluated for the actions of its scope
	id          cedar.PolicyID
	text        string // as written, without comments around it
	obligations map[string]string
}

// Compile checks files against the schema and builds a Set. The error, if any,
// is a Problems with everything that is wrong. No files, or files without a
// policy, are a valid set that denies everything (C-10).
func Compile(files []Source) (*Set, error) {
	c := &compiler{seen: map[string]Rule{}}
	if len(files) > MaxFiles {
		c.add(Problem{File: files[MaxFiles].Name, Message: fmt.Sprintf("too many policy files: limit %d", MaxFiles)})
		files = files[:MaxFiles]
	}
	check, err := newChecker()
	if err != nil {
		return nil, fmt.Errorf("load policy schema: %w", err)
	}
	c.check = check
	for i, f := range files {
		c.file(i, f)
	}
	c.sort()
	if c.problems.failed() {
		return nil, c.problems
	}
	s := newSet(c.rules)
	s.warnings = c.problems
	s.revision = revision(check.canonical, s.rules)
	return s, nil
}

// newSet indexes rules; their IDs are unique.
func newSet(rules []rule) *Set {
	s := &Set{rules: rules, byID: make(map[cedar.PolicyID]int, len(rules)), index: newIndex(rules)}
	for i := range rules {
		s.byID[rules[i].id] = i
		rules[i].indexed = withoutActionSet(rules[i].policy)
	}
	return s
}

// Revision names schema and policies: "sha256:…". Comments, layout, file names
// and the order of policies and annotations don't change it.
func (s *Set) Revision() string {
	if s == nil {
		return ""
	}
	return s.revision
}

// Warnings lists what Compile found doubtful.
func (s *Set) Warnings() []Problem {
	if s == nil {
		return nil
	}
	return slices.Clone(s.warnings)
}

// Listing is one policy for display.
type Listing struct {
	Rule
	Text string // the policy as written, from its first annotation to its ";"
}

// Policies lists the set in file order.
func (s *Set) Policies() []Listing {
	if s == nil {
		return nil
	}
	out := make([]Listing, len(s.rules))
	for i, r := range s.rules {
		out[i] = Listing{Rule: r.Rule, Text: r.text}
	}
	return out
}

// revision hashes the printed form of what was really compiled, each part with
// its length, ordered by policy ID.
func revision(schema string, rules []rule) string {
	texts := make([]string, len(rules))
	for i := range rules {
		texts[i] = canonicalPolicy(rules[i].policy)
	}
	order := make([]int, len(rules))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(rules[a].ID, rules[b].ID) })
	h := sha256.New()
	fmt.Fprintf(h, "agentos-policy/v1\n%d\n%s\n", len(schema), schema)
	for _, i := range order {
		fmt.Fprintf(h, "%d\n%s\n", len(texts[i]), texts[i])
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// canonicalPolicy prints a policy with its annotations in name order.
func canonicalPolicy(p *cedar.Policy) string {
	a := *p.AST()
	a.Annotations = slices.Clone(a.Annotations)
	slices.SortFunc(a.Annotations, func(x, y annotation) int { return cmp.Compare(x.Key, y.Key) })
	return string(cedar.NewPolicyFromAST(&a).MarshalCedar())
}
