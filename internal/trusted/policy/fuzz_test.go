package policy

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

func newGen(seed uint64) gen { return gen{rand.New(rand.NewPCG(seed, 11))} }

// scopeNode is a policy's scope as one expression.
func scopeNode(p *ast.Policy) ast.Node {
	bare := *p
	bare.Conditions = nil
	return eval.PolicyToNode(&bare)
}

// checkProblems: an error says something, and our lexer is never the only one
// that refuses a file.
func checkProblems(t *testing.T, text []byte, err error) {
	t.Helper()
	var ps Problems
	if !errors.As(err, &ps) || !ps.failed() {
		t.Fatalf("error without a problem: %v", err)
	}
	list, parse := cedar.NewPolicyListFromBytes("f", text)
	if parse != nil {
		return
	}
	toks, lerr := lex(string(text))
	c := &compiler{}
	stmts, bounded := c.statements(src(""), code(toks))
	if lerr != nil || bounded && len(stmts) != len(list) {
		t.Fatalf("cedar-go reads %d policies, we %d, error %v", len(list), len(stmts), lerr)
	}
}

// FuzzCompile: Compile neither panics nor accepts what cedar-go refuses; the
// revision's printed form parses back to the same policy; deciding never panics.
func FuzzCompile(f *testing.F) {
	f.Add(defaultText)
	f.Add([]byte(good))
	f.Add([]byte(cond("principal is Agent", `context.args has x && context.args.x like "a*" && [1,2].contains(3)`)))
	f.Add([]byte(newGen(1).policies(3)))
	f.Add([]byte(`@id("a") permit(principal in Owner::"\u{1F600}",action,resource) unless { if true then -1 == - 1 else ip("1.1.1.1").isIpv4() };`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Compile([]Source{{Name: "f", Text: text}})
		if err != nil {
			checkProblems(t, text, err)
			return
		}
		list, err := cedar.NewPolicyListFromBytes("f", text)
		if err != nil || len(list) != len(s.rules) {
			t.Fatalf("compiled %d policies, cedar-go %d: %v", len(s.rules), len(list), err)
		}
		for i, l := range s.Policies() {
			one, err := cedar.NewPolicyListFromBytes("f", []byte(l.Text))
			if err != nil || len(one) != 1 {
				t.Fatalf("listing of policy %d doesn't parse: %v\n%s", i, err, l.Text)
			}
			samePolicies(t, cedar.PolicyList{list[i]}, one)
			printed, err := cedar.NewPolicyListFromBytes("f", []byte(canonicalPolicy(list[i])))
			if err != nil {
				t.Fatalf("printed policy doesn't parse: %v", err)
			}
			one[0] = list[i]
			x, y := *(*ast.Policy)(one[0].AST()), *(*ast.Policy)(printed[0].AST())
			x.Annotations, y.Annotations = nil, nil
			samePolicies(t, cedar.PolicyList{cedar.NewPolicyFromAST((*policyAST)(&x))}, cedar.PolicyList{cedar.NewPolicyFromAST((*policyAST)(&y))})
		}
		s.Explain(agentCall("normal", "system_inspect", "read", `{"x":"abc"}`))
	})
}
