//go:build linux

package once

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentos/integration/person"
	"agentos/internal/execution/model/modeltest"
	"agentos/internal/lib/chat"
)

// TestInspectWithoutModel is the demonstration: no key, no model, a real report
// and a record that verifies.
func TestInspectWithoutModel(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		_, ended := p.events(0, "Inspect this Linux system")
		if ended["reason"] != "completed" || ended["verified"] != true {
			t.Fatalf("%v", ended)
		}
		report, _ := ended["report"].(string)
		for _, s := range []string{"Memory", "Kernel"} {
			if !strings.Contains(strings.ToLower(report), strings.ToLower(s)) {
				t.Errorf("report says nothing of %s:\n%s", s, report)
			}
		}
		p.Paired()
		kinds := []string{}
		for _, r := range p.Log() {
			kinds = append(kinds, r.Kind)
		}
		if !slices.Contains(kinds, "run.start") || kinds[len(kinds)-1] != "run.end" {
			t.Errorf("%v", kinds)
		}
		run, _ := lastRun(p)
		p.Want(0, []string{"Inspect this Linux system", "system_inspect", "normal-reads"}, "lineage", run)
		p.Want(0, []string{"default-agent"}, "agent", "list")
	})
}

func lastRun(p *asked) (string, []person.Record) {
	p.T.Helper()
	log := p.Log()
	run := ""
	for _, r := range log {
		if r.Run != "" {
			run = r.Run
		}
	}
	var out []person.Record
	for _, r := range log {
		if r.Run == run {
			out = append(out, r)
		}
	}
	return run, out
}

func TestGoalNotUnderstood(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		p.Want(10, []string{"inspect"}, "agent", "once", "Paint the fence")
		p.Paired()
	})
}

// TestSocketModel: a scripted server, streaming and not, drives a whole run.
func TestSocketModel(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		for _, stream := range []string{"false", "true"} {
			p.Env = nil
			srv := p.model(modeltest.Script{Turns: []modeltest.Turn{
				callTool("c1", "system_inspect", `{"sections":["kernel"]}`), say("It runs Linux."),
			}})
			p.Env = append(p.Env, "AGENTOS_MODEL_STREAM="+stream)
			_, ended := p.events(0, "which kernel")
			if ended["report"] != "It runs Linux." {
				t.Fatalf("stream %s: %v", stream, ended)
			}
			reqs := srv.Requests()
			if len(reqs) != 2 || reqs[0].MaxOutputTokens != 2048 || !strings.Contains(reqs[1].Messages[len(reqs[1].Messages)-1].Text, `"release"`) {
				t.Errorf("stream %s: requests %+v", stream, reqs)
			}
			p.Paired()
		}
	})
}

// TestEachLimit: every limit of OSA-01 ends the run with its own reason and
// exit code, and the record still verifies.
func TestEachLimit(t *testing.T) {
	same := callTool("x", "system_inspect", `{"sections":["kernel"]}`)
	n := 0
	fresh := func(args string) modeltest.Turn {
		n++
		return callTool(fmt.Sprint("c", n), "package_query", args)
	}
	var many []modeltest.Turn
	for i := range 40 {
		many = append(many, fresh(fmt.Sprintf(`{"name":"no-such-package-%d"}`, i)))
	}
	cycle := []modeltest.Turn{}
	for range 10 {
		cycle = append(cycle, fresh(`{"name":"aa"}`), fresh(`{"name":"bb"}`))
	}
	noProgress := []modeltest.Turn{}
	for range 10 {
		noProgress = append(noProgress, fresh(`{"name":"aa"}`))
	}
	cut := say("cut off")
	cut.Response.Stop = chat.StopLength
	big := fresh(`{"name":"zz"}`)
	big.Response.Usage = chat.Usage{InputTokens: 60_000, OutputTokens: 2_000}
	bigger := fresh(`{"name":"yy"}`)
	bigger.Response.Usage = big.Response.Usage
	for name, tc := range map[string]struct {
		turns  []modeltest.Turn
		env    []string
		reason string
		code   int
	}{
		"iterations":   {many, nil, "limit_iterations", 11},
		"tool calls":   {many, []string{"AGENTOS_AGENT_MAX_TOOL_CALLS=2"}, "limit_tool_calls", 12},
		"elapsed":      {[]modeltest.Turn{{Fault: modeltest.Silent}}, []string{"AGENTOS_AGENT_MAX_ELAPSED_S=2"}, "limit_elapsed", 13},
		"turn tokens":  {[]modeltest.Turn{cut}, nil, "limit_turn_tokens", 14},
		"total tokens": {[]modeltest.Turn{big, bigger, say("x")}, nil, "limit_total_tokens", 15},
		"duplicate ID": {[]modeltest.Turn{same, same}, nil, "duplicate_call_id", 16},
		"no progress":  {noProgress, []string{"AGENTOS_AGENT_MAX_ITERATIONS=30"}, "no_progress", 17},
		"cycle":        {cycle, []string{"AGENTOS_AGENT_MAX_ITERATIONS=30"}, "cycle", 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := user(t)
			p.model(modeltest.Script{Turns: tc.turns, Repeat: true})
			p.Env = append(p.Env, tc.env...)
			_, ended := p.events(tc.code, "go on for ever")
			if ended["reason"] != tc.reason {
				t.Errorf("reason %v, want %s (%v)", ended["reason"], tc.reason, ended["detail"])
			}
			p.Paired()
		})
	}
}

// slow faults end by a timeout: TestEachLimit has one, and the backend's own
// tests the rest.
var slow = map[modeltest.Fault]bool{modeltest.Silent: true, modeltest.Stall: true, modeltest.Comments: true, modeltest.Endless: true}

// TestEachModelFault: what real servers were seen doing (FACTS) ends in a typed
// reason, never in an effect without its record.
func TestEachModelFault(t *testing.T) {
	for _, f := range slices.Concat(modeltest.BodyFaults(), modeltest.StatusFaults(), modeltest.ConnectionFaults()) {
		if slow[f] {
			continue // bounded by limits: TestEachLimit and the backend's own tests
		}
		for _, stream := range []string{"false", "true"} {
			t.Run(string(f)+"/"+stream, func(t *testing.T) {
				t.Parallel()
				p := user(t)
				p.model(modeltest.Script{Turns: []modeltest.Turn{{Fault: f}}, Repeat: true})
				p.Env = append(p.Env, "AGENTOS_MODEL_STREAM="+stream, "AGENTOS_AGENT_MAX_ELAPSED_S=20")
				r := p.Do("agent", "once", "do something")
				if r.Code == 1 || r.Code == 21 || r.Code < 0 {
					t.Errorf("not a typed end: %v", r)
				}
				p.Paired()
			})
		}
	}
}

func TestBadCalls(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		srv := p.model(modeltest.Script{Turns: []modeltest.Turn{
			callTool("c1", "no_such_tool", `{}`),
			callTool("c2", "system_inspect", `{"sections":["kernel"],"extra":1}`),
			callTool("c3", "system_inspect", `{"sections":7}`),
			callTool("c4", "system_inspect", `{"a":1,"a":2}`),
			callTool("c5", "package_query", `{"name":"`+strings.Repeat("a", 70_000)+`"}`),
			callTool("c6", "service_inspect", `{"unit":"ssh.service"}`),
			say("done"),
		}})
		_, ended := p.events(0, "try everything")
		if ended["report"] != "done" {
			t.Fatalf("%v", ended)
		}
		reqs := srv.Requests()
		if len(reqs) != 7 {
			t.Fatalf("%d requests", len(reqs))
		}
		for _, r := range p.Log() {
			if r.Kind == "call.intent" && r.Body["action"] == "tool.call" {
				t.Errorf("admitted: %+v", r)
			}
		}
		p.Paired()
	})
}

// TestServiceAllowlist is C-10 at the command line: absent and empty lists
// grant nothing, a listed unit is asked about, another is refused.
func TestServiceAllowlist(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		for _, env := range []string{"", "AGENTOS_SERVICE_INSPECT_ALLOWLIST="} {
			p.Env = nil
			if env != "" {
				p.Env = []string{env}
			}
			p.Want(0, []string{"denied", "capability", "allow list", "AGENTOS_SERVICE_INSPECT_ALLOWLIST"}, "policy", "explain", "--action", "tool.call", "--resource", "service_inspect", "--args", `{"unit":"ssh.service"}`)
		}
		p.Env = []string{"AGENTOS_SERVICE_INSPECT_ALLOWLIST=ssh.service"}
		p.Want(0, []string{"allowed", "normal-reads"}, "policy", "explain", "--action", "tool.call", "--resource", "service_inspect", "--args", `{"unit":"ssh.service"}`)
		p.Want(0, []string{"denied", "cron.service", "allow list"}, "policy", "explain", "--action", "tool.call", "--resource", "service_inspect", "--args", `{"unit":"cron.service"}`)
		_, ended := p.events(0, "Is the service ssh healthy?")
		if ended["reason"] != "completed" {
			t.Errorf("%v", ended)
		}
	})
}

// TestOwnPolicyForbids: a file in policy.dir takes a tool away; the run says
// so, and explain names rule, file and next step.
func TestOwnPolicyForbids(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		dir := filepath.Join(p.Home, "policy")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		rule := "@id(\"no-inspection\")\n@reason(\"not here\")\nforbid (principal, action == Action::\"tool.call\", resource == Tool::\"system_inspect\");\n"
		if err := os.WriteFile(filepath.Join(dir, "own.cedar"), []byte(rule), 0o644); err != nil {
			t.Fatal(err)
		}
		p.Env = []string{"AGENTOS_POLICY_DIR=" + dir}
		all, _ := p.events(0, "Inspect this Linux system")
		denied := ""
		for _, e := range all {
			if d, ok := e["decided"].(map[string]any); ok && d["allowed"] != true {
				denied, _ = d["call"].(string)
			}
		}
		if denied == "" {
			t.Fatalf("nothing was denied: %v", all)
		}
		p.Want(0, []string{"denied", "no-inspection", "own.cedar"}, "policy", "explain", denied)
		p.Paired()
	})
}

// TestRootAgentRefused: UID 0 and GID 0 agents don't exist (OSA-02).
func TestRootAgentRefused(t *testing.T) {
	p := &asked{person.Root(t, bin)}
	for _, env := range [][]string{{"AGENTOS_AGENT_UID=0"}, {"AGENTOS_AGENT_GID=0"}, {"AGENTOS_AGENT_UID=0", "AGENTOS_AGENT_GID=0"}, {"AGENTOS_AGENT_UID=77777"}} {
		p.Env = env
		if r := p.Do("agent", "once", "Inspect this Linux system"); r.Code == 0 || !strings.Contains(r.Err, "next:") {
			t.Errorf("%v: %v", env, r)
		}
	}
	p.Env = []string{"AGENTOS_AGENT_UID=77777", "AGENTOS_AGENT_GID=77778"}
	_, ended := p.events(0, "Inspect this Linux system")
	if ended["reason"] != "completed" {
		t.Error(ended)
	}
	p.Env = []string{"AGENTOS_AGENT_UID=88888", "AGENTOS_AGENT_GID=88888"}
	p.Want(8, []string{"77777"}, "agent", "once", "Inspect this Linux system") // a binding is for good
}
