// Package policytest reads policy test files: YAML lists of requests and what
// the policy must decide about them.
//
// State owned: none. Imports: trusted/policy, lib/canon, goccy/go-yaml. Imported
// by: the rooms that check policies (CLI and daemon). It stands outside the
// trusted plane so that no YAML parser is linked there; policy.RunTests decides.
// Lock order: no locks. Invariants: unknown keys are errors that name the line;
// input is bounded before it is parsed; anchors and aliases are refused.
// Format: docs/spec/policy.md. Tests: policytest_test.go, FuzzParse.
// Spec: AOS-08.
package policytest

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"agentos/internal/lib/canon"
	"agentos/internal/trusted/policy"
)

// Limits of one test file.
const (
	MaxBytes   = 1 << 20 // bytes
	MaxCases   = 10_000  // cases
	MaxNesting = 16      // brackets within brackets, list marks on one line
)

//go:embed default_test.yaml
var defaultText []byte

// Default is the test file of the shipped policy set.
func Default() policy.Source {
	return policy.Source{Name: "default_test.yaml", Text: slices.Clone(defaultText)}
}

// file format, see docs/spec/policy.md.
type (
	caseYAML struct {
		Name      string         `yaml:"name"`
		Principal principalYAML  `yaml:"principal"`
		Action    string         `yaml:"action"`
		Resource  resourceYAML   `yaml:"resource"`
		Args      map[string]any `yaml:"args"`
		Run       string         `yaml:"run"`
		Want      string         `yaml:"want"`
		Rules     *[]string      `yaml:"rules"`
	}
	principalYAML struct {
		Owner *uint32 `yaml:"owner"`
		Agent string  `yaml:"agent"`
		Trust string  `yaml:"trust"`
	}
	resourceYAML struct {
		Type   string  `yaml:"type"`
		Name   string  `yaml:"name"`
		Effect string  `yaml:"effect"`
		Local  bool    `yaml:"local"`
		Owner  *uint32 `yaml:"owner"`
		Trust  string  `yaml:"trust"`
	}
)

// Parse reads one file. The error, if any, is a policy.Problems with everything
// that is wrong. An empty file has no cases.
func Parse(f policy.Source) ([]policy.Case, error) {
	p := reader{file: f.Name, names: map[string]int{}}
	cases := p.parse(f.Text)
	if len(p.problems) > 0 {
		return nil, p.problems
	}
	return cases, nil
}

type reader struct {
	file     string
	names    map[string]int // case name → line
	problems policy.Problems
}

func (p *reader) fail(line, col int, format string, a ...any) {
	p.problems = append(p.problems, policy.Problem{File: p.file, Line: line, Column: col, Severity: policy.Error, Message: fmt.Sprintf(format, a...)})
}

func (p *reader) parse(text []byte) []policy.Case {
	if len(text) > MaxBytes {
		p.fail(0, 0, "file has %d bytes, limit %d", len(text), MaxBytes)
		return nil
	}
	if line := tooDeep(text); line > 0 {
		p.fail(line, 1, "nested deeper than %d", MaxNesting)
		return nil
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		p.yaml(err)
		return nil
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			p.at(d.Body, "more than one document in the file")
			return nil
		}
		body = d.Body
	}
	if body == nil || body.Type() == ast.NullType || body.Type() == ast.CommentType {
		return nil
	}
	list, ok := body.(*ast.SequenceNode)
	if !ok {
		p.at(body, "file must be a list of cases")
		return nil
	}
	if len(list.Values) > MaxCases {
		p.at(list.Values[MaxCases], "more than %d cases", MaxCases)
		return nil
	}
	cases := make([]policy.Case, 0, len(list.Values))
	for _, n := range list.Values {
		if c, ok := p.one(n); ok {
			cases = append(cases, c)
		}
	}
	return cases
}

// at reports a problem with a node.
func (p *reader) at(n ast.Node, format string, a ...any) {
	line, col := position(n)
	p.fail(line, col, format, a...)
}

func position(n ast.Node) (line, col int) {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}

// yaml reports an error of the YAML library, which carries its own position.
func (p *reader) yaml(err error) {
	var y yaml.Error
	if errors.As(err, &y) {
		line, col := 0, 0
		if t := y.GetToken(); t != nil && t.Position != nil {
			line, col = t.Position.Line, t.Position.Column
		}
		p.fail(line, col, "%s", y.GetMessage())
		return
	}
	p.fail(0, 0, "%s", strings.SplitN(err.Error(), "\n", 2)[0])
}

// alias finds the first anchor, alias, merge key or tag below a node.
type alias struct{ found ast.Node }

func (a *alias) Visit(n ast.Node) ast.Visitor {
	switch n.Type() {
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType, ast.TagType:
		if a.found == nil {
			a.found = n
		}
		return nil
	}
	return a
}

// one decodes and checks one case.
func (p *reader) one(n ast.Node) (policy.Case, bool) {
	var a alias
	if ast.Walk(&a, n); a.found != nil {
		p.at(a.found, "anchors, aliases, merge keys and tags are not used in test files")
		return policy.Case{}, false
	}
	if n.Type() != ast.MappingType {
		p.at(n, "a case must be a mapping of name, principal, action, resource and want")
		return policy.Case{}, false
	}
	var y caseYAML
	if err := yaml.NodeToValue(n, &y, yaml.Strict()); err != nil {
		p.yaml(err)
		return policy.Case{}, false
	}
	before := len(p.problems)
	line, _ := position(n)
	args := []byte("{}")
	if y.Args != nil {
		var err error
		if args, err = canon.Marshal(y.Args); err != nil {
			p.at(n, "args are no JSON object: %v", err)
		}
	}
	p.check(n, &y, line)
	c := policy.Case{
		File: p.file, Line: line, Name: y.Name, Allow: y.Want == "allow",
		Request: policy.Request{
			Principal: policy.Principal{Agent: y.Principal.Agent, Trust: y.Principal.Trust},
			Action:    y.Action,
			Resource:  policy.Resource{Type: y.Resource.Type, Name: y.Resource.Name, Effect: y.Resource.Effect, Local: y.Resource.Local, Trust: y.Resource.Trust},
			Args:      args,
			Run:       y.Run,
		},
	}
	if y.Principal.Owner != nil {
		c.Request.Principal.Owner = *y.Principal.Owner
	}
	if y.Resource.Owner != nil {
		c.Request.Resource.Owner = *y.Resource.Owner
	}
	if y.Rules != nil {
		c.Rules = append([]string{}, *y.Rules...)
	}
	return c, len(p.problems) == before
}

// check reports what is missing or doesn't fit together. What the policy would
// refuse to decide may be tested on purpose, so it is no problem here.
func (p *reader) check(n ast.Node, y *caseYAML, line int) {
	if y.Name == "" {
		p.at(n, "case has no name")
	} else if prev, dup := p.names[y.Name]; dup {
		p.at(n, "case %q is already on line %d", y.Name, prev)
	} else {
		p.names[y.Name] = line
	}
	if y.Want != "allow" && y.Want != "deny" {
		p.at(n, "want is %q: write allow or deny", y.Want)
	}
	if y.Principal.Owner == nil {
		p.at(n, "principal has no owner")
	}
	if y.Resource.Type == "Agent" && y.Resource.Owner == nil {
		p.at(n, "resource of type Agent has no owner")
	}
	for _, f := range [][2]string{{"action", y.Action}, {"resource.type", y.Resource.Type}, {"resource.name", y.Resource.Name}} {
		if f[1] == "" {
			p.at(n, "case has no %s", f[0])
		}
	}
}

// tooDeep finds the line on which brackets or list marks nest too deeply; 0 when
// none does. It runs before the parser, whose recursion follows the nesting, and
// takes brackets inside strings for brackets: no honest file has so many.
func tooDeep(text []byte) int {
	depth, marks, line := 0, 0, 1
	for i, b := range text {
		switch b {
		case '\n':
			line, marks = line+1, 0
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '-', '?', ':':
			if i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t') {
				marks++
			}
		case '&', '*', '!':
			marks++
		}
		if depth > MaxNesting || marks > 4*MaxNesting {
			return line
		}
	}
	return 0
}
