package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ids(rs []Rule) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

// Spec: INV-02.
func TestErrorsDeny(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, src(good+`
@id("f") @reason("f") forbid (principal, action, resource is Tool) when { context.args has lines && context.args.lines > 100 };
@id("o") @reason("o") permit (principal, action, resource is Tool) when { context.args has sum && context.args.sum + 9223372036854775807 > 0 };
`))
	tests := []struct {
		name, args string
		allow      bool
		rules      string
		err        string
	}{
		{"plain", `{}`, true, "a", ""},
		{"no bytes", ``, true, "a", ""},
		{"below", `{"lines":100}`, true, "a", ""},
		{"forbidden", `{"lines":101}`, false, "f", ""},
		{"wrong type in a forbid", `{"lines":"101"}`, false, "", "type error"},
		{"overflow in another permit", `{"sum":1}`, false, "", "overflow"},
		{"forbid and error", `{"lines":101,"sum":1}`, false, "f", "overflow"},
		{"null is absent", `{"lines":null}`, true, "a", ""},
		{"fraction is absent", `{"lines":100.5}`, true, "a", ""},
		{"list is absent", `{"lines":[101]}`, true, "a", ""},
		{"nested is absent", `{"x":{"lines":101}}`, true, "a", ""},
		{"list", `[]`, false, "", "not a JSON object"},
		{"null", `null`, false, "", "not a JSON object"},
		{"cut off", `{"lines":1`, false, "", "convert arguments"},
		{"twice", `{"lines":1,"lines":2}`, false, "", "duplicate"},
		{"two documents", `{"lines":1}{}`, false, "", "more than one"},
		{"no text", "{\"x\":\"\xff\"}", false, "", "UTF-8"},
		{"too large", `{"x":"` + strings.Repeat("x", MaxArgsBytes) + `"}`, false, "", "limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := s.Decide(agentCall("normal", "x", "read", tt.args))
			if d.Allow != tt.allow || ids(d.Rules) != tt.rules || (tt.err == "") != (len(d.Errors) == 0) || !strings.Contains(strings.Join(d.Errors, "\n"), tt.err) {
				t.Errorf("%+v", d)
			}
			if d.Revision != s.Revision() {
				t.Error("decision lacks the revision")
			}
		})
	}
}

// TestMalformedRequests: with a set that permits everything, what the schema
// doesn't describe is still denied.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, src(good))
	base := agentCall("normal", "x", "read", "{}")
	if d := s.Decide(base); !d.Allow {
		t.Fatalf("control case: %+v", d)
	}
	tests := map[string]func(r *Request){
		"no action":         func(r *Request) { r.Action = "" },
		"unknown action":    func(r *Request) { r.Action = "tool.cal" },
		"no trust":          func(r *Request) { r.Principal.Trust = "" },
		"unknown trust":     func(r *Request) { r.Principal.Trust = "Normal" },
		"owner calls tool":  func(r *Request) { r.Principal.Agent = "" },
		"agent starts":      func(r *Request) { r.Action = "agent.start" },
		"no type":           func(r *Request) { r.Resource.Type = "" },
		"owner as resource": func(r *Request) { r.Resource.Type = "Owner" },
		"wrong type":        func(r *Request) { r.Resource.Type = "Model" },
		"no effect":         func(r *Request) { r.Resource.Effect = "" },
		"unknown effect":    func(r *Request) { r.Resource.Effect = "none" },
		"no name":           func(r *Request) { r.Resource.Name = "" },
		"long name":         func(r *Request) { r.Resource.Name = strings.Repeat("x", MaxNameBytes+1) },
		"name no text":      func(r *Request) { r.Resource.Name = "\xff" },
		"agent no text":     func(r *Request) { r.Principal.Agent = "\xff" },
		"run no text":       func(r *Request) { r.Run = "\xff" },
		"agent without trust": func(r *Request) {
			r.Action, r.Principal.Agent = "agent.start", ""
			r.Resource = Resource{Type: "Agent", Name: "x", Owner: 1000}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := base
			change(&r)
			if d := s.Decide(r); d.Allow || len(d.Errors) != 1 || len(d.Rules) != 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

func TestObligations(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, src(`@id("a") @reason("r") permit (principal, action, resource is Tool) when { resource.effect == "read" };
@id("b") @reason("r") @approval("owner") permit (principal, action, resource is Tool);
@id("c") @reason("r") forbid (principal, action, resource is Tool) when { principal is Agent && principal.trust == "quarantined" };`))
	want := map[string]string{"approval": "owner"}
	if d := s.Decide(agentCall("normal", "x", "read", "")); !d.Allow || cmp.Diff(want, d.Obligations) != "" {
		t.Errorf("the stricter of two permits doesn't count: %+v", d)
	}
	if d := s.Decide(agentCall("quarantined", "x", "read", "")); d.Allow || d.Obligations != nil {
		t.Errorf("%+v", d)
	}
	d := s.Decide(agentCall("normal", "x", "read", ""))
	d.Obligations["approval"] = "changed"
	if d := s.Decide(agentCall("normal", "x", "read", "")); d.Obligations["approval"] != "owner" {
		t.Error("a caller changed the set through a decision")
	}
}

func TestForbidWins(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, src(good+strings.NewReplacer(`"a"`, `"z"`, "permit", "forbid").Replace(good)))
	if d := s.Decide(agentCall("normal", "x", "read", "")); d.Allow || ids(d.Rules) != "z" {
		t.Errorf("%+v", d)
	}
}

func TestDecideIsDeterministic(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Default()...)
	req := agentCall("quarantined", "system_inspect", "read", `{"a":1,"b":true,"c":"x"}`)
	first := s.Explain(req)
	for range 100 {
		if d := cmp.Diff(first, s.Explain(req)); d != "" {
			t.Fatal(d)
		}
	}
}

func FuzzArgs(f *testing.F) {
	for _, s := range []string{`{}`, `{"n":1}`, `{"n":-9223372036854775808,"s":"\u0000","b":true}`, `{"n":1e3}`, `null`, `{"a":{"a":{}}}`, `{"a":1}x`} {
		f.Add([]byte(s))
	}
	s := mustCompile(f, Default()...)
	reads := mustCompile(f, src(cond("principal is Agent", `context.args has n && context.args.n == 1 || true`)))
	f.Fuzz(func(t *testing.T, args []byte) {
		rec, err := convertArgs(args)
		if check := checkArgs(args); (check == nil) != (err == nil) {
			t.Fatalf("check says %v, conversion %v", check, err)
		}
		d := s.Decide(Request{Principal: Principal{Owner: 1, Agent: "a", Trust: "normal"}, Action: "tool.call",
			Resource: Resource{Type: "Tool", Name: "t", Effect: "read"}, Args: args})
		if d.Allow != (err == nil) {
			t.Fatalf("conversion error %v, decision %+v", err, d)
		}
		if d := reads.Decide(agentCall("normal", "t", "read", string(args))); err != nil && d.Allow {
			t.Fatalf("conversion error %v, decision %+v", err, d)
		}
		again, _ := convertArgs(args)
		if err == nil && !rec.Equal(again) {
			t.Fatal("conversion differs from itself")
		}
	})
}
