package policy

import (
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Default()...)
	tests := []struct {
		name   string
		req    Request
		rules  string
		misses string // "id: sentences" joined by "; "
		next   string
	}{
		{"allowed", agentCall("normal", "system_inspect", "read", ""), "normal-reads", "", ""},
		{"write", agentCall("normal", "file_write", "write", ""), "", "normal-reads: `resource.effect` must be \"read\", but is \"write\"", "make the missing facts true"},
		{"restricted", agentCall("restricted", "journal_read", "read", ""), "", "normal-reads: `principal.trust` must be \"normal\", but is \"restricted\"", "default.cedar:15"},
		{"forbidden", agentCall("quarantined", "journal_read", "read", ""), "quarantined-does-nothing", "normal-reads: `principal.trust` must be \"normal\", but is \"quarantined\"", "forbids this"},
		{"not own agent", Request{Principal: Principal{Owner: 1000}, Action: "agent.start", Resource: Resource{Type: "Agent", Name: "x", Owner: 1001, Trust: "normal"}}, "",
			"owner-starts-own-agent: `resource.owner` must be principal, but is Owner::\"uid:1001\" (`principal` is Owner::\"uid:1000\")", "make the missing"},
		{"malformed", Request{Action: "x"}, "", "", "correct the request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := s.Explain(tt.req)
			if ids(x.Rules) != tt.rules {
				t.Errorf("rules %q", ids(x.Rules))
			}
			var misses []string
			for _, m := range x.NearMisses {
				misses = append(misses, m.Rule.ID+": "+strings.Join(m.Missing, ", "))
			}
			if got := strings.Join(misses, "; "); got != tt.misses {
				t.Errorf("near misses\n%s\nwant\n%s", got, tt.misses)
			}
			if !strings.Contains(x.Next, tt.next) || (x.Next == "") != x.Allow {
				t.Errorf("next %q", x.Next)
			}
		})
	}
}

func TestExplainSentences(t *testing.T) {
	t.Parallel()
	tests := []struct{ expr, args, want string }{
		{`context.args has lines && context.args.lines < 5`, `{}`, "`context.args` has no \"lines\""},
		{`context.args has lines && context.args.lines < 5`, `{"lines":7}`, "`context.args.lines` must be less than 5, but is 7"},
		{`context.args has lines && context.args.lines <= 5`, `{"lines":7}`, "`context.args.lines` must be at most 5, but is 7"},
		{`context.args has lines && context.args.lines > 5`, `{"lines":5}`, "`context.args.lines` must be greater than 5, but is 5"},
		{`context.args has lines && context.args.lines >= 5`, `{"lines":4}`, "`context.args.lines` must be at least 5, but is 4"},
		{`context.args has unit && context.args.unit like "ssh*"`, `{"unit":"cron"}`, "`context.args.unit` must match \"ssh*\", but is \"cron\""},
		{`context.args has unit && ["a","b"].contains(context.args.unit)`, `{"unit":"cron"}`, "`context.args.unit` must be one of [\"a\", \"b\"], but is \"cron\""},
		{`context.args has all && context.args.all`, `{"all":false}`, "`context.args.all` must be true, but is false"},
		{`context.args has all && !context.args.all`, `{"all":true}`, "`context.args.all` must not hold, but does"},
		{`context.run != ""`, `{}`, "`context.run` must not be \"\", but is \"\""},
		{`principal == Agent::"x" || principal == Agent::"y"`, `{}`, "`principal == Agent::\"x\" || principal == Agent::\"y\"` doesn't hold"},
		{`context.args has lines && context.args.lines < 5`, `{"lines":"x"}`, "can't be decided"},
	}
	for _, tt := range tests {
		s := mustCompile(t, src(cond("principal is Agent", tt.expr)))
		x := s.Explain(agentCall("normal", "t", "read", tt.args))
		if len(x.NearMisses) != 1 || len(x.NearMisses[0].Missing) != 1 || !strings.Contains(x.NearMisses[0].Missing[0], tt.want) {
			t.Errorf("%s with %s: %+v", tt.expr, tt.args, x.NearMisses)
		}
	}
	s := mustCompile(t, src(strings.Replace(cond("principal is Agent", `context.run == ""`), "when", "unless", 1)))
	x := s.Explain(agentCall("normal", "t", "read", ""))
	if len(x.NearMisses) != 1 || x.NearMisses[0].Missing[0] != "`context.run == \"\"` must not hold, but does" {
		t.Errorf("unless: %+v", x.NearMisses)
	}
	x = mustCompile(t).Explain(agentCall("normal", "t", "read", ""))
	if want := `no policy permits Action::"tool.call" on Tool::"t" for Agent::"helper"`; !strings.Contains(x.Next, want) {
		t.Errorf("next %q", x.Next)
	}
}

// TestExplainDecidesAsDecide: over random sets, the decision is the same.
func TestExplainDecidesAsDecide(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		g := newGen(seed)
		s, _ := unchecked(t, g.policies(20))
		for range 10 {
			req := g.request()
			x, d := s.Explain(req), s.Decide(req)
			if x.Allow != d.Allow || ids(x.Rules) != ids(d.Rules) {
				t.Fatalf("explain %+v, decide %+v", x.Decision, d)
			}
			for _, m := range x.NearMisses {
				if len(m.Missing) == 0 && len(d.Rules) == 0 && len(d.Errors) == 0 {
					t.Fatalf("permit %s lacks nothing, yet the request is denied", m.Rule.ID)
				}
			}
		}
	}
}
