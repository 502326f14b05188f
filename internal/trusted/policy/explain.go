package policy

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// Explanation is a decision with what people need to understand it.
type Explanation struct {
	Decision
	// NearMisses are the permits whose scope matches a denied request, in file
	// order. Empty when the request is allowed.
	NearMisses []NearMiss
	// Next says what the reader can do; empty when the request is allowed.
	Next string
}

// NearMiss is a permit that would have applied.
type NearMiss struct {
	Rule    Rule
	Missing []string // sentences, one a condition that doesn't hold; empty when all hold
}

// Explain is Decide and the reasons for it. The decision comes from the code
// that enforces; only the search for near misses is extra.
func (s *Set) Explain(r Request) Explanation {
	if s == nil {
		return Explanation{Decision: s.Decide(r), Next: "load a policy set: `agentos policy check` tests the files"}
	}
	w, err := newWorld(&r)
	if err == nil {
		err = w.withContext(true)
	}
	if err != nil {
		return Explanation{Decision: s.Decide(r), Next: "correct the request: the schema describes what policies can be asked about"}
	}
	x := Explanation{Decision: s.decide(w)}
	if x.Allow {
		return x
	}
	env := eval.Env{Entities: w, Principal: w.principal.UID, Action: w.action, Resource: w.resource.UID, Context: w.context}
	for i := range s.rules {
		p := (*ast.Policy)(s.rules[i].policy.AST())
		if p.Effect == ast.EffectPermit && scopeMatches(p, env) {
			x.NearMisses = append(x.NearMisses, NearMiss{Rule: s.rules[i].Rule, Missing: missing(p, env)})
		}
	}
	x.Next = x.next(w)
	return x
}

func (x *Explanation) next(w *world) string {
	switch {
	case len(x.Errors) > 0:
		return "correct the policy that failed, test it by `agentos policy test`, then try again"
	case len(x.Rules) > 0:
		r := x.Rules[0]
		return fmt.Sprintf("%s:%d forbids this, whatever else permits it: remove its cause or change that policy", r.File, r.Line)
	case len(x.NearMisses) > 0:
		r := x.NearMisses[0].Rule
		return fmt.Sprintf("make the missing facts true, or write a permit beside %q (%s:%d) and test it by `agentos policy test`", r.ID, r.File, r.Line)
	}
	return fmt.Sprintf("no policy permits %s on %s for %s: write one and test it by `agentos policy test`", w.action, w.resource.UID, w.principal.UID)
}

// scopeMatches asks cedar-go about the scope alone.
func scopeMatches(p *ast.Policy, env eval.Env) bool {
	bare := *p
	bare.Conditions = nil
	v, err := eval.Eval(eval.PolicyToNode(&bare).AsIsNode(), env)
	return err == nil && v == types.Boolean(true)
}

// missing names, for each condition, the first conjunct that doesn't hold: those
// behind it may be meaningless without it (`has` before access).
func missing(p *ast.Policy, env eval.Env) []string {
	var out []string
	for _, c := range p.Conditions {
		if c.Condition == ast.ConditionUnless {
			v, err := eval.Eval(c.Body, env)
			if err != nil {
				out = append(out, fmt.Sprintf("`%s` can't be decided: %v", source(c.Body), err))
			} else if v == types.Boolean(true) {
				out = append(out, fmt.Sprintf("`%s` must not hold, but does", source(c.Body)))
			}
			continue
		}
		for _, n := range conjuncts(c.Body, nil) {
			v, err := eval.Eval(n, env)
			if err != nil {
				out = append(out, fmt.Sprintf("`%s` can't be decided: %v", source(n), err))
				break
			}
			if v != types.Boolean(true) {
				out = append(out, fact(n, env))
				break
			}
		}
	}
	return out
}

func conjuncts(n ast.IsNode, out []ast.IsNode) []ast.IsNode {
	if and, ok := n.(ast.NodeTypeAnd); ok {
		return conjuncts(and.Right, conjuncts(and.Left, out))
	}
	return append(out, n)
}

// fact is a sentence about a conjunct that is false.
func fact(n ast.IsNode, env eval.Env) string {
	switch n := n.(type) {
	case ast.NodeTypeEquals:
		return compared(n.BinaryNode, "must be", env)
	case ast.NodeTypeNotEquals:
		return compared(n.BinaryNode, "must not be", env)
	case ast.NodeTypeLessThan:
		return compared(n.BinaryNode, "must be less than", env)
	case ast.NodeTypeLessThanOrEqual:
		return compared(n.BinaryNode, "must be at most", env)
	case ast.NodeTypeGreaterThan:
		return compared(n.BinaryNode, "must be greater than", env)
	case ast.NodeTypeGreaterThanOrEqual:
		return compared(n.BinaryNode, "must be at least", env)
	case ast.NodeTypeHas:
		return fmt.Sprintf("`%s` has no %q", source(n.Arg), string(n.Value))
	case ast.NodeTypeLike:
		return fmt.Sprintf("`%s` must match %s%s", source(n.Arg), n.Value.MarshalCedar(), valueOf(n.Arg, env))
	case ast.NodeTypeContains:
		return fmt.Sprintf("`%s` must be one of %s%s", source(n.Right), source(n.Left), valueOf(n.Right, env))
	case ast.NodeTypeNot:
		return fmt.Sprintf("`%s` must not hold, but does", source(n.Arg))
	case ast.NodeTypeAccess:
		return fmt.Sprintf("`%s` must be true%s", source(n), valueOf(n, env))
	}
	return fmt.Sprintf("`%s` doesn't hold", source(n))
}

// compared puts the side that isn't a constant first.
func compared(b ast.BinaryNode, verb string, env eval.Env) string {
	return fmt.Sprintf("`%s` %s %s%s", source(b.Left), verb, source(b.Right), valueOf(b.Left, env)+valueOfRight(b.Right, env))
}

func valueOf(n ast.IsNode, env eval.Env) string {
	if _, literal := n.(ast.NodeValue); literal {
		return ""
	}
	v, err := eval.Eval(n, env)
	if err != nil {
		return ""
	}
	return ", but is " + clip(string(v.MarshalCedar()))
}

func valueOfRight(n ast.IsNode, env eval.Env) string {
	if s := strings.TrimPrefix(valueOf(n, env), ", but is "); s != "" && s != source(n) {
		return fmt.Sprintf(" (`%s` is %s)", source(n), s)
	}
	return ""
}

// clip bounds what of an argument or a condition goes into a sentence.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// source prints an expression. cedar-go prints whole policies only, so it is
// made the condition of one and cut out again.
func source(n ast.IsNode) string {
	if v, ok := n.(ast.NodeTypeVariable); ok {
		return string(v.Name)
	}
	p := ast.Permit().When(ast.NewNode(n))
	p.Position = ast.Position{}
	text := string(cedar.NewPolicyFromAST((*policyAST)(p)).MarshalCedar())
	_, text, _ = strings.Cut(text, "\nwhen { ")
	return clip(strings.TrimSuffix(text, " };"))
}
