package capability

import (
	"strings"
	"testing"
	"time"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/call"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func toolCall(t *testing.T, run, tool, args string) *call.Call {
	t.Helper()
	c, err := call.New("call-1", call.Subject{Owner: 1000, Agent: "a", Run: run}, call.ToolCall, tool, []byte(args), now)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestCheck(t *testing.T) {
	units := func(vs ...string) map[string][]string { return map[string][]string{"unit": vs} }
	for name, tc := range map[string]struct {
		grants []Grant
		args   string
		want   string // grant ID, or part of the refusal after "!"
	}{
		"empty table":               {nil, `{}`, "!no grant"},
		"other run":                 {[]Grant{{ID: "g", Run: "r2", Action: call.ToolCall, Resource: "x"}}, `{}`, "!no grant"},
		"other action":              {[]Grant{{ID: "g", Run: "r1", Action: call.ModelGenerate, Resource: "x"}}, `{}`, "!no grant"},
		"other tool":                {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "xx"}}, `{}`, "!no grant"},
		"held":                      {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x"}}, `{"any":1}`, "g"},
		"expired":                   {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Expires: now}}, `{}`, "!expired"},
		"second grant carries":      {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Expires: now}, {ID: "h", Run: "r1", Action: call.ToolCall, Resource: "x"}}, `{}`, "h"},
		"allowed value":             {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units("a.service")}}, `{"unit":"a.service"}`, "g"},
		"other value":               {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units("a.service")}}, `{"unit":"b.service"}`, "!allow list"},
		"C-10 empty list":           {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units()}}, `{"unit":"a.service"}`, "!empty"},
		"C-10 null list":            {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: map[string][]string{"unit": nil}}}, `{"unit":""}`, "!empty"},
		"argument missing":          {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units("a")}}, `{}`, "!must be"},
		"argument of another type":  {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units("1")}}, `{"unit":1}`, "!must be"},
		"argument in another case":  {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units("a")}}, `{"Unit":"a"}`, "!must be"},
		"value is a prefix only":    {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units("a")}}, `{"unit":"ab"}`, "!allow list"},
		"null value is not a value": {[]Grant{{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x", Allowed: units("")}}, `{"unit":null}`, "!must be"},
	} {
		t.Run(name, func(t *testing.T) {
			tab := NewTable()
			for _, g := range tc.grants {
				if err := tab.Add(g); err != nil {
					t.Fatal(err)
				}
			}
			id, err := tab.Check(toolCall(t, "r1", "x", tc.args))
			if want, refused := strings.CutPrefix(tc.want, "!"); refused {
				if fault.KindOf(err) != fault.Denied || fault.NextOf(err) == "" || !strings.Contains(err.Error(), want) {
					t.Fatalf("got %q, %v; want a refusal with %q", id, err, want)
				}
			} else if err != nil || id != tc.want {
				t.Fatalf("got %q, %v", id, err)
			}
		})
	}
}

func TestRevokedGrantIsDead(t *testing.T) {
	tab := NewTable()
	g := Grant{ID: "g", Run: "r1", Action: call.ToolCall, Resource: "x"}
	for name, revoke := range map[string]func(){
		"one": func() { tab.Revoke("g") },
		"run": func() { tab.RevokeRun("r1") },
	} {
		if err := tab.Add(g); err != nil {
			t.Fatal(err)
		}
		c := toolCall(t, "r1", "x", `{}`)
		if _, err := tab.Check(c); err != nil {
			t.Fatal(name, err)
		}
		revoke()
		if _, err := tab.Check(c); err == nil {
			t.Errorf("%s: revoked grant still carries", name)
		}
	}
	if tab.Revoke("g") {
		t.Error("revoked what was not there")
	}
}

func TestAddRefusesOpenGrants(t *testing.T) {
	for _, g := range []Grant{{}, {ID: "g", Run: "r"}, {ID: "g", Action: call.ToolCall, Resource: "x"}, {ID: "g", Run: "r", Resource: "x"}} {
		if NewTable().Add(g) == nil {
			t.Errorf("added %+v", g)
		}
	}
}
