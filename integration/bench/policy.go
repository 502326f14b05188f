package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"agentos/internal/trusted/policy"
)

const (
	policyRounds = 41  // rounds in turn with the bare engine
	policyBatch  = 100 // decisions in one round
)

// policySection measures one decision, ours beside plain cedar-go over the same
// policies. Ours starts at the gate's request, so it includes the conversion of
// principal, resource and arguments; plain cedar-go gets them ready made.
func policySection(ctx context.Context, _ string) (Section, error) {
	s := Section{
		Title: "Policy decision",
		Note: "Median of one decision. Mixed: policies for many owners, agents and tools, of which few concern a request. " +
			"One scope: every policy has the scope of the request, so no index can leave any out and each is evaluated.",
	}
	for _, mix := range []struct {
		name string
		text func(n int) string
	}{{"mixed", mixedPolicies}, {"one scope", oneScopePolicies}} {
		for _, n := range []int{10, 100, 1000} {
			if err := ctx.Err(); err != nil {
				return s, err
			}
			row, err := policyRow(mix.text(n))
			if err != nil {
				return s, fmt.Errorf("measure %d policies, %s: %w", n, mix.name, err)
			}
			row.Name = fmt.Sprintf("decide, %s, %d policies", mix.name, n)
			if mix.name == "mixed" && n == 1000 {
				row.Target = "≤ 10 µs"
			}
			s.Rows = append(s.Rows, row)
		}
	}
	return s, nil
}

func policyRow(text string) (Row, error) {
	set, err := policy.Compile([]policy.Source{{Name: "bench.cedar", Text: []byte(text)}})
	if err != nil {
		return Row{}, err
	}
	plain, err := cedar.NewPolicySetFromBytes("bench.cedar", []byte(text))
	if err != nil {
		return Row{}, err
	}
	req, bareReq, entities := policyRequests()
	ours, bare := set.Decide(req).Allow, false
	if d, _ := cedar.Authorize(plain, entities, bareReq); d == cedar.Allow {
		bare = true
	}
	if ours != bare {
		return Row{}, fmt.Errorf("decisions differ: ours %v, plain %v", ours, bare)
	}
	var mine, theirs []float64
	for round := range policyRounds + 1 {
		began := time.Now()
		for range policyBatch {
			set.Decide(req)
		}
		mid := time.Now()
		for range policyBatch {
			cedar.Authorize(plain, entities, bareReq)
		}
		if end := time.Now(); round > 0 { // the first warms caches
			mine = append(mine, perDecision(mid.Sub(began)))
			theirs = append(theirs, perDecision(end.Sub(mid)))
		}
	}
	return Row{Value: median(mine), Unit: "µs", Base: median(theirs), BaseName: "plain cedar-go"}, nil
}

// perDecision is the share of one decision in a batch, in microseconds.
func perDecision(batch time.Duration) float64 {
	return float64(batch.Nanoseconds()) / 1000 / policyBatch
}

func policyRequests() (policy.Request, types.Request, types.EntityMap) {
	owner := types.NewEntityUID("Owner", "uid:1003")
	agent := types.NewEntityUID("Agent", "agent-3")
	tool := types.NewEntityUID("Tool", "tool-3")
	args := types.NewRecord(types.RecordMap{"unit": types.String("ssh.service"), "lines": types.Long(50)})
	return policy.Request{
			Principal: policy.Principal{Owner: 1003, Agent: "agent-3", Trust: "normal"},
			Action:    "tool.call",
			Resource:  policy.Resource{Type: "Tool", Name: "tool-3", Effect: "read"},
			Args:      []byte(`{"lines":50,"unit":"ssh.service"}`),
			Run:       "run-1",
		}, types.Request{
			Principal: agent, Action: types.NewEntityUID("Action", "tool.call"), Resource: tool,
			Context: types.NewRecord(types.RecordMap{"args": args, "run": types.String("run-1")}),
		}, types.EntityMap{
			owner: {UID: owner},
			agent: {
				UID: agent, Parents: types.NewEntityUIDSet(owner),
				Attributes: types.NewRecord(types.RecordMap{"owner": owner, "trust": types.String("normal")}),
			},
			tool: {UID: tool, Attributes: types.NewRecord(types.RecordMap{"effect": types.String("read")})},
		}
}

// mixedPolicies has four kinds in turn: for all agents on one tool, for one
// owner's agents, for one agent, and for starting agents. Fifty owners, two
// hundred agents, forty tools.
func mixedPolicies(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "@id(\"p%d\") @reason(\"measured\") ", i)
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, `forbid (principal is Agent, action == Action::"tool.call", resource == Tool::"tool-%d") when { principal.trust == "quarantined" };`, i%40)
		case 1:
			fmt.Fprintf(&b, `permit (principal in Owner::"uid:%d", action == Action::"model.generate", resource is Model) when { resource.local };`, 1000+i%50)
		case 2:
			fmt.Fprintf(&b, `permit (principal in Owner::"uid:%d", action == Action::"tool.call", resource == Tool::"tool-%d") when { resource.effect == "read" };`, 1000+i/4%50, i/4%40)
		default:
			fmt.Fprintf(&b, `permit (principal == Agent::"agent-%d", action == Action::"tool.call", resource is Tool) when { resource.effect == "read" && context.args has unit && context.args.unit like "ssh*" };`, i%200)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// oneScopePolicies is the worst case of an index by scope.
func oneScopePolicies(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "@id(\"p%d\") @reason(\"measured\") permit (principal is Agent, action == Action::\"tool.call\", resource is Tool) when { context.args has unit && context.args.unit == \"unit-%d\" };\n", i, i)
	}
	return b.String()
}
