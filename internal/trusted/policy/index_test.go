package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	"github.com/google/go-cmp/cmp"
)

// gen makes policies and requests over a vocabulary so small that most scopes
// are hit often, by right and by near misses.
type gen struct{ *rand.Rand }

func pick[T any](g gen, xs ...T) T { return xs[g.IntN(len(xs))] }

func (g gen) owner() string { return fmt.Sprintf(`Owner::"uid:%d"`, 1000+g.IntN(3)) }
func (g gen) agent() string { return fmt.Sprintf(`Agent::"a%d"`, g.IntN(3)) }

func (g gen) entity() string {
	return pick(g, g.owner(), g.agent(), fmt.Sprintf(`Tool::"t%d"`, g.IntN(3)), fmt.Sprintf(`Model::"m%d"`, g.IntN(2)))
}

func (g gen) scope(name string) string {
	typ := pick(g, "Owner", "Agent", "Tool", "Model")
	return name + pick(g, "", " == "+g.entity(), " in "+g.entity(), " is "+typ, " is "+typ+" in "+g.entity())
}

func (g gen) action() string {
	a := func() string { return `Action::"` + actions[g.IntN(len(actions))].name + `"` }
	return "action" + pick(g, "", " == "+a(), " in "+a(), " in ["+a()+", "+a()+"]", " in []")
}

func (g gen) condition() string {
	return pick(g, "", "",
		` when { principal has trust && principal.trust == "normal" }`,
		` when { resource has effect && resource.effect == "read" }`,
		` unless { context.args has n && context.args.n > 1 }`,
		` when { context.args has n && context.args.n + 9223372036854775807 > 0 }`, // may overflow
		` when { context.args.s like "x*" }`,                                       // may be absent or no string
		` when { principal.trust == "restricted" }`,                                // an owner has none
		` when { resource in `+g.owner()+` }`,
		` unless { principal in `+g.owner()+` }`,
		` when { context.run == "run-1" }`)
}

// expr is any expression that parses; types don't matter to those who use it.
func (g gen) expr(depth int) string {
	if depth == 0 {
		return pick(g, "true", "principal", "resource", "context", "1", "-1", `"a\"//b"`, `"/*"`, g.entity(), `ip("::1")`)
	}
	e := func() string { return g.expr(depth - 1) }
	return pick(g,
		func() string { return "(" + e() + ")" },
		func() string {
			return "(" + e() + ")" + pick(g, ".a", `["a b"]`, ".contains("+e()+")", ".isEmpty()", ".a.b[\"c\"]")
		},
		func() string { return pick(g, "!", "-", "!!", "--", "-!") + "(" + e() + ")" },
		func() string {
			return "(" + e() + ")" + pick(g, "==", "!=", "<", "<=", ">", ">=", " in ") + "(" + e() + ")"
		},
		func() string { return e2(e) + pick(g, "+", "-", "*", "- -", "&&", "||") + e2(e) },
		func() string { return "[" + e() + "," + e() + pick(g, "", ",") + "]" },
		func() string { return "{a:" + e() + `,"b c":` + e() + "}" },
		func() string { return "if " + e() + " then " + e() + " else " + e() },
		func() string { return "(" + e() + ") has " + pick(g, "a", "a.b", `"x y"`) },
		func() string { return "(" + e() + `) like "a*\*"` },
		func() string { return "(" + e() + ") is Agent" + pick(g, "", " in "+g.owner()) },
	)()
}

func e2(e func() string) string { return "(" + e() + ")" }

func (g gen) policies(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "@id(\"p%d\")\n%s (%s, %s, %s)%s;\n", i, pick(g, "permit", "permit", "forbid"),
			g.scope("principal"), g.action(), g.scope("resource"), g.condition())
	}
	return b.String()
}

func (g gen) request() Request {
	trust := func() string { return pick(g, "normal", "restricted", "quarantined") }
	agentName := func() string { return fmt.Sprintf("a%d", g.IntN(3)) }
	uid := func() uint32 { return uint32(1000 + g.IntN(3)) }
	r := Request{
		Principal: Principal{Owner: uid(), Agent: agentName(), Trust: trust()},
		Args:      []byte(pick(g, "", `{}`, `{"n":0}`, `{"n":5,"s":"xy"}`, `{"s":true}`, `{"n":null,"s":"x"}`)),
		Run:       pick(g, "", "run-1"),
	}
	switch g.IntN(3) {
	case 0:
		r.Action = "agent.start"
		r.Principal = Principal{Owner: uid()}
		r.Resource = Resource{Type: "Agent", Name: agentName(), Owner: uid(), Trust: trust()}
	case 1:
		r.Action = "tool.call"
		r.Resource = Resource{Type: "Tool", Name: fmt.Sprintf("t%d", g.IntN(3)), Effect: pick(g, "read", "write", "admin")}
	default:
		r.Action = "model.generate"
		r.Resource = Resource{Type: "Model", Name: fmt.Sprintf("m%d", g.IntN(2)), Local: g.IntN(2) == 0}
	}
	return r
}

// unchecked builds a set without the schema check, so that scopes and
// conditions which the schema would refuse are covered too.
func unchecked(t testing.TB, text string) (*Set, *cedar.PolicySet) {
	t.Helper()
	list, err := cedar.NewPolicyListFromBytes("p.cedar", []byte(text))
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, text)
	}
	plain := cedar.NewPolicySet()
	rules := make([]rule, 0, len(list))
	for _, p := range list {
		r := rule{policy: p, id: cedar.PolicyID(p.Annotations()["id"])}
		r.ID, r.Line = string(r.id), p.Position().Line
		plain.Add(r.id, p)
		rules = append(rules, r)
	}
	return newSet(rules), plain
}

// TestIndexIsExact compares with cedar-go over the whole set, and the candidates
// with the policies whose scope cedar-go says matches.
func TestIndexIsExact(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(300) {
		g := gen{rand.New(rand.NewPCG(seed, 7))}
		text := g.policies(g.IntN(30))
		set, plain := unchecked(t, text)
		for range 30 {
			req := g.request()
			w := fullWorld(t, req)
			got := set.Decide(req)
			effect, diag := cedar.Authorize(plain, w, w.request())
			var want []string
			if effect == cedar.Deny || len(diag.Errors) == 0 {
				want = sortedIDs(diag.Reasons)
			}
			if wantAllow := effect == cedar.Allow && len(diag.Errors) == 0; got.Allow != wantAllow {
				t.Fatalf("seed %d: allow %v, plain cedar-go %v\nrequest %+v\n%s", seed, got.Allow, wantAllow, req, text)
			}
			var ids []string
			for _, r := range got.Rules {
				ids = append(ids, r.ID)
			}
			if !slices.IsSortedFunc(got.Rules, func(a, b Rule) int { return a.Line - b.Line }) {
				t.Fatalf("rules are not in file order: %v", got.Rules)
			}
			slices.Sort(ids)
			if d := cmp.Diff(want, ids); d != "" {
				t.Fatalf("seed %d: deciding rules (-plain +indexed)\n%s", seed, d)
			}
			if len(got.Errors) != len(diag.Errors) {
				t.Fatalf("seed %d: errors %v, plain cedar-go %v", seed, got.Errors, diag.Errors)
			}
			checkCandidates(t, set, w)
			seen[fmt.Sprintf("%v/%v/%v", got.Allow, len(ids) > 0, len(got.Errors) > 0)]++
		}
	}
	for _, kind := range []string{"true/true/false", "false/true/false", "false/false/false", "false/false/true", "false/true/true"} {
		if seen[kind] < 20 {
			t.Errorf("only %d decisions of kind allow/rules/errors %s: the generator covers too little", seen[kind], kind)
		}
	}
}

func fullWorld(t *testing.T, req Request) *world {
	t.Helper()
	w, err := newWorld(&req)
	if err == nil {
		err = w.withContext(true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func sortedIDs(rs []cedar.DiagnosticReason) []string {
	var ids []string
	for _, r := range rs {
		ids = append(ids, string(r.PolicyID))
	}
	slices.Sort(ids)
	return ids
}

// checkCandidates: no policy twice, none missing, and none too many except
// "is T in E", which is kept by E alone.
func checkCandidates(t *testing.T, s *Set, w *world) {
	t.Helper()
	env := eval.Env{Entities: w, Principal: w.principal.UID, Action: w.action, Resource: w.resource.UID, Context: w.context}
	got := map[cedar.PolicyID]bool{}
	for id := range s.candidates(w).All() {
		if got[id] {
			t.Fatalf("policy %s is a candidate twice", id)
		}
		got[id] = true
	}
	for i := range s.rules {
		p := (*ast.Policy)(s.rules[i].policy.AST())
		_, loose1 := p.Principal.(ast.ScopeTypeIsIn)
		_, loose2 := p.Resource.(ast.ScopeTypeIsIn)
		switch want, has := scopeMatches(p, env), got[s.rules[i].id]; {
		case want && !has:
			t.Fatalf("policy %s matches but is no candidate", s.rules[i].id)
		case has && !want && !loose1 && !loose2:
			t.Fatalf("policy %s is a candidate but its scope doesn't match", s.rules[i].id)
		}
	}
}

// TestSchemaActionsAreFlat: the index takes `action in X` for `action == X`, and
// newWorld repeats the schema's appliesTo.
func TestSchemaActionsAreFlat(t *testing.T) {
	t.Parallel()
	c, err := newChecker()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.schema.Actions) != len(actions) {
		t.Errorf("schema has %d actions, newWorld %d", len(c.schema.Actions), len(actions))
	}
	for _, a := range actions {
		s, ok := c.schema.Actions[a.uid]
		if !ok || s.AppliesTo == nil {
			t.Fatalf("schema lacks %s", a.uid)
		}
		if n := s.Entity.Parents.Len(); n != 0 {
			t.Errorf("%s has %d parents: teach the index about action groups", a.uid, n)
		}
		if d := cmp.Diff([]cedar.EntityType{a.principal}, s.AppliesTo.Principals); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]cedar.EntityType{a.resource}, s.AppliesTo.Resources); d != "" {
			t.Error(d)
		}
	}
	for name, e := range c.schema.Entities {
		if len(e.ParentTypes) > 0 && name != typeAgent {
			t.Errorf("%s has parents: teach the index about it", name)
		}
	}
}
