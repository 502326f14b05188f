package policy

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

//go:embed agentos.cedarschema
var schemaText []byte

// Schema is the shipped schema, in Cedar's schema syntax.
func Schema() Source {
	return Source{Name: "agentos.cedarschema", Text: slices.Clone(schemaText)}
}

// checker validates policies against the schema, strictly, with cedar-go's type
// checker, plus what that checker leaves open: see vocabulary.
type checker struct {
	schema     *resolved.Schema
	canonical  string // the schema printed without comments
	validators map[string]*validate.Validator
	attrs      map[types.String]bool // every attribute that any type declares
}

// finding is one message about a policy, with the words by which its place in
// the source may be found.
type finding struct {
	severity Severity
	text     string
	words    []string
}

func newChecker() (*checker, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar(schemaText); err != nil {
		return nil, err
	}
	canonical, err := s.MarshalCedar()
	if err != nil {
		return nil, err
	}
	r, err := s.Resolve()
	if err != nil {
		return nil, err
	}
	c := &checker{schema: r, canonical: string(canonical), validators: map[string]*validate.Validator{}, attrs: map[types.String]bool{}}
	for _, e := range r.Entities {
		for name := range e.Shape {
			c.attrs[name] = true
		}
	}
	for _, a := range r.Actions {
		if a.AppliesTo != nil {
			for name := range a.AppliesTo.Context {
				c.attrs[name] = true
			}
		}
	}
	return c, nil
}

// policy returns everything wrong with p.
func (c *checker) policy(p *ast.Policy) []finding {
	var out []finding
	used := argTypes(p)
	declared := c.declaredArgs()
	extra := map[types.String]resolved.IsType{}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if _, ok := declared[name]; !ok {
			extra[name] = used[name]
			out = append(out, finding{Warning, fmt.Sprintf("no built-in tool has an argument %q; taken as %s", string(name), typeName(used[name])), []string{string(name)}})
		}
	}
	if err := c.validator(extra).Policy("", p); err != nil {
		for _, line := range flatten(err) {
			out = append(out, finding{Error, line, quotedWords(line)})
		}
	}
	return append(out, c.vocabulary(p)...)
}

func flatten(err error) []string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var out []string
		for _, e := range joined.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []string{err.Error()}
}

func (c *checker) declaredArgs() resolved.RecordType {
	for _, a := range c.schema.Actions {
		if args, ok := a.AppliesTo.Context["args"].Type.(resolved.RecordType); ok {
			return args
		}
	}
	return nil
}

// validator is the schema's, with extra optional arguments. Arguments of tools
// that aren't built in have no declared type: each policy gives it by use, and a
// call whose argument has another type is an error while deciding, a denial.
func (c *checker) validator(extra map[types.String]resolved.IsType) *validate.Validator {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		fmt.Fprintf(&key, "%q:%s,", string(name), typeName(extra[name]))
	}
	if v, ok := c.validators[key.String()]; ok {
		return v
	}
	s := *c.schema
	if len(extra) > 0 {
		s.Actions = maps.Clone(s.Actions)
		args := maps.Clone(c.declaredArgs())
		if args == nil {
			args = resolved.RecordType{}
		}
		for name, t := range extra {
			args[name] = resolved.Attribute{Type: t, Optional: true}
		}
		for uid, a := range s.Actions {
			to := *a.AppliesTo
			to.Context = maps.Clone(to.Context)
			to.Context["args"] = resolved.Attribute{Type: args}
			a.AppliesTo = &to
			s.Actions[uid] = a
		}
	}
	v := validate.New(&s)
	c.validators[key.String()] = v
	return v
}

// closed lists the attributes whose strings are a closed set. A mistyped value
// in a forbid would never match, and so silently allow.
var closed = map[types.String][]string{
	"trust":  {"normal", "restricted", "quarantined"},
	"effect": {"read", "write", "admin"},
}

// vocabulary checks what the type checker accepts: comparing a closed attribute
// with a string outside its set, `has` of a name that nothing declares, and
// comparing entities that are never of one type.
func (c *checker) vocabulary(p *ast.Policy) []finding {
	var out []finding
	compare := func(a, b ast.IsNode) {
		acc, ok := a.(ast.NodeTypeAccess)
		if !ok || closed[acc.Value] == nil || !isVariable(acc.Arg, "principal", "resource") {
			return
		}
		for _, s := range literalStrings(b) {
			if !slices.Contains(closed[acc.Value], s) {
				out = append(out, finding{Error, fmt.Sprintf("%q is no %s: there are %s", s, acc.Value, strings.Join(closed[acc.Value], ", ")), []string{s}})
			}
		}
	}
	equal := func(a, b ast.IsNode) {
		compare(a, b)
		compare(b, a)
		x, y := entityTypes(p, a), entityTypes(p, b)
		if len(x) > 0 && len(y) > 0 && !slices.ContainsFunc(x, func(t types.EntityType) bool { return slices.Contains(y, t) }) {
			out = append(out, finding{Error, fmt.Sprintf("`%s` and `%s` are never equal: %s and %s are different types", source(a), source(b), x[0], y[0]), nil})
		}
	}
	visit(p, func(n ast.IsNode) {
		switch n := n.(type) {
		case ast.NodeTypeEquals:
			equal(n.Left, n.Right)
		case ast.NodeTypeNotEquals:
			equal(n.Left, n.Right)
		case ast.NodeTypeContains:
			compare(n.Right, n.Left)
		case ast.NodeTypeHas:
			if isVariable(n.Arg, "principal", "resource", "context") && !c.attrs[n.Value] {
				out = append(out, finding{Error, fmt.Sprintf("attribute `%s` is declared nowhere in the schema", n.Value), []string{string(n.Value)}})
			}
		}
	})
	return out
}

// entityTypes lists the types that an entity expression can have within p's
// scope; nothing when it is no such expression or its types aren't known.
func entityTypes(p *ast.Policy, n ast.IsNode) []types.EntityType {
	switch n := n.(type) {
	case ast.NodeValue:
		if uid, ok := n.Value.(types.EntityUID); ok {
			return []types.EntityType{uid.Type}
		}
	case ast.NodeTypeAccess:
		if n.Value == "owner" && isVariable(n.Arg, "principal", "resource") {
			return []types.EntityType{typeOwner}
		}
	case ast.NodeTypeVariable:
		var out []types.EntityType
		uids := scopeActions(p.Action)
		for _, a := range actions {
			if !slices.Contains(uids, a.uid) || !scopeAdmits(p.Principal, a.principal) || !scopeAdmits(p.Resource, a.resource) {
				continue
			}
			switch n.Name {
			case "principal":
				out = append(out, a.principal)
			case "resource":
				out = append(out, a.resource)
			}
		}
		return out
	}
	return nil
}

func scopeAdmits(s ast.IsScopeNode, t types.EntityType) bool {
	switch s := s.(type) {
	case ast.ScopeTypeEq:
		return s.Entity.Type == t
	case ast.ScopeTypeIs:
		return s.Type == t
	case ast.ScopeTypeIsIn:
		return s.Type == t
	}
	return true
}

// visit calls fn for every node of p's conditions.
func visit(p *ast.Policy, fn func(ast.IsNode)) {
	for _, cond := range p.Conditions {
		ast.Inspect(ast.NewNode(cond.Body), func(n ast.IsNode) bool { fn(n); return true })
	}
}

func isVariable(n ast.IsNode, names ...string) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && slices.Contains(names, string(v.Name))
}

func literalStrings(n ast.IsNode) []string {
	switch n := n.(type) {
	case ast.NodeValue:
		if s, ok := n.Value.(types.String); ok {
			return []string{string(s)}
		}
	case ast.NodeTypeSet:
		var out []string
		for _, e := range n.Elements {
			out = append(out, literalStrings(e)...)
		}
		return out
	}
	return nil
}

var quoted = regexp.MustCompile("`([^`]+)`")

// quotedWords picks the names out of a type checker's message, last part first:
// for `context.args.lines` that is "lines".
func quotedWords(msg string) []string {
	var out []string
	for _, m := range quoted.FindAllStringSubmatch(msg, -1) {
		w := strings.TrimSuffix(m[1], `"`)
		w = w[strings.LastIndexAny(w, `"`)+1:]
		if !strings.HasSuffix(m[1], `"`) {
			w = w[strings.LastIndexAny(w, ".:")+1:]
		}
		out = append(out, w)
	}
	return out
}

// at finds the first token that is one of the finding's words; the policy's
// first token when there is none.
func (f finding) at(st []token) token {
	for _, w := range f.words {
		for _, t := range st {
			if t.text == w || t.kind == tokString && t.text == `"`+w+`"` {
				return t
			}
		}
	}
	return st[0]
}
