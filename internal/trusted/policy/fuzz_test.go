package policy

import (
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
			if err.(Problems).Error() == "" {
				t.Fatal("empty error")
			}
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
