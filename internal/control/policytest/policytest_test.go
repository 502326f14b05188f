package policytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/execution/tool/catalog"
	"agentos/internal/trusted/policy"
)

func TestDefaultSetPassesItsFile(t *testing.T) {
	t.Parallel()
	set, err := policy.Compile(policy.Default())
	if err != nil {
		t.Fatal(err)
	}
	cases, err := Parse(Default())
	if err != nil {
		t.Fatal(err)
	}
	allows, used := 0, map[string]bool{}
	for _, r := range policy.RunTests(set, cases) {
		if r.Failure != "" {
			t.Errorf("%s:%d: %s: %s", r.File, r.Line, r.Name, r.Failure)
		}
		if r.Allow {
			allows++
		}
		for _, rule := range r.Got.Rules {
			used[rule.ID] = true
		}
	}
	if denials := len(cases) - allows; denials <= allows {
		t.Errorf("%d denials, %d allows: want more denials", denials, allows)
	}
	for _, p := range set.Policies() {
		if !used[p.ID] {
			t.Errorf("no case is decided by %s", p.ID)
		}
	}
}

// TestCasesCanFail: each default case fails against a set that decides the
// opposite, and a wrong expectation about rules fails too.
func TestCasesCanFail(t *testing.T) {
	t.Parallel()
	cases, err := Parse(Default())
	if err != nil {
		t.Fatal(err)
	}
	all, err := policy.Compile([]policy.Source{{Name: "all", Text: []byte(`@id("all") @reason("r") permit (principal, action, resource);`)}})
	if err != nil {
		t.Fatal(err)
	}
	none, err := policy.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	permitted := policy.RunTests(all, cases)
	for i, r := range policy.RunTests(none, cases) {
		if r.Allow && r.Failure == "" {
			t.Errorf("%s passes with no policy", r.Name)
		}
		if !r.Allow && permitted[i].Failure == "" && len(permitted[i].Got.Errors) == 0 {
			t.Errorf("%s passes with a policy that permits all", r.Name)
		}
		if r.Allow && !strings.Contains(permitted[i].Failure, "deciding rules") {
			t.Errorf("%s: other rules decided, failure %q", r.Name, permitted[i].Failure)
		}
	}
}

const one = "- name: a\n  principal: {owner: 1, agent: x, trust: normal}\n  action: tool.call\n  resource: {type: Tool, name: t, effect: read}\n"

func TestParse(t *testing.T) {
	t.Parallel()
	cases, err := Parse(policy.Source{Name: "f", Text: []byte("# c\n" + one + "  args: {n: 1, s: \"1\", b: true, z: null, l: [1], f: 1.5}\n  run: r\n  want: allow\n" +
		strings.Replace(one, "name: a", "name: b", 1) + "  want: deny\n  rules: []\n")})
	if err != nil {
		t.Fatal(err)
	}
	req := policy.Request{Principal: policy.Principal{Owner: 1, Agent: "x", Trust: "normal"}, Action: "tool.call",
		Resource: policy.Resource{Type: "Tool", Name: "t", Effect: "read"}}
	a, b := req, req
	a.Args, a.Run = []byte(`{"b":true,"f":1.5,"l":[1],"n":1,"s":"1","z":null}`), "r"
	b.Args = []byte("{}")
	want := []policy.Case{{File: "f", Line: 2, Name: "a", Request: a, Allow: true}, {File: "f", Line: 9, Name: "b", Request: b, Rules: []string{}}}
	if d := cmp.Diff(want, cases); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	full := one + "  want: deny\n"
	tests := []struct{ name, text, want string }{
		{"unknown key", full + "  wnat: x\n", `f:6:3: error: unknown field "wnat"`},
		{"unknown nested key", strings.Replace(full, "trust", "trsut", 1), `f:2:35: error: unknown field "trsut"`},
		{"wrong type", strings.Replace(full, "owner: 1", "owner: x", 1), "f:2:"},
		{"negative owner", strings.Replace(full, "owner: 1", "owner: -1", 1), "f:2:"},
		{"large owner", strings.Replace(full, "owner: 1", "owner: 4294967296", 1), "f:2:"},
		{"no owner", strings.Replace(full, "owner: 1, ", "", 1), "principal has no owner"},
		{"agent without owner", strings.Replace(full, "type: Tool", "type: Agent", 1), "Agent has no owner"},
		{"no name", strings.Replace(full, "name: a", `name: ""`, 1), "case has no name"},
		{"no action", strings.Replace(full, "tool.call", `""`, 1), "case has no action"},
		{"no want", one, `want is ""`},
		{"other want", one + "  want: maybe\n", `want is "maybe"`},
		{"twice", full + full, `f:6:3: error: case "a" is already on line 1`},
		{"key twice", full + "  want: deny\n", "f:6:"},
		{"no list", "name: a\n", "must be a list"},
		{"no mapping", "- a\n", "must be a mapping"},
		{"two documents", full + "---\n" + full, "more than one document"},
		{"anchor", strings.Replace(full, "tool.call", "&a tool.call", 1), "anchors"},
		{"alias", strings.Replace(full, "tool.call", "&a tool.call", 1) + "  run: *a\n", "anchors"},
		{"tag", strings.Replace(full, "tool.call", "!!str tool.call", 1), "anchors"},
		{"large number", full + "  args: {n: 9007199254740993}\n", "args are no JSON"},
		{"no yaml", "- [", "f:1:"},
		{"deep", strings.Repeat("[", 100_000), "f:1:1: error: nested deeper"},
		{"deep lists", strings.Repeat("- ", 100_000), "f:1:1: error: nested deeper"},
		{"deep keys", strings.Repeat("? ", 100_000), "f:1:1: error: nested deeper"},
		{"large", strings.Repeat("#", MaxBytes+1), "limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(policy.Source{Name: "f", Text: []byte(tt.text)})
			var ps policy.Problems
			if !errors.As(err, &ps) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
	for _, empty := range []string{"", "\n", "# only a comment\n", "---\n", "null\n", "[]\n"} {
		if cases, err := Parse(policy.Source{Name: "f", Text: []byte(empty)}); err != nil || len(cases) != 0 {
			t.Errorf("%q: %v, %v", empty, cases, err)
		}
	}
}

// TestParseReportsEverything: a mistake in one case doesn't hide the next.
func TestParseReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := Parse(policy.Source{Name: "f", Text: []byte(one + "  wnat: x\n" + strings.Replace(one, "name: a", "name: b", 1) + "- 1\n")})
	var ps policy.Problems
	if !errors.As(err, &ps) || len(ps) != 3 {
		t.Errorf("%v", err)
	}
}

// TestSchemaKnowsTheToolArguments holds the schema's Args against the tools: a
// policy about a scalar argument of a built-in tool compiles without warning.
func TestSchemaKnowsTheToolArguments(t *testing.T) {
	t.Parallel()
	tools, err := catalog.ReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	expr := map[string]string{"string": `context.args.%s like "x"`, "integer": `context.args.%s < 1`, "boolean": `context.args.%s`}
	n := 0
	for _, d := range tools {
		var schema struct {
			Properties map[string]struct {
				Type string
				Enum []string
			}
		}
		if err := json.Unmarshal(d.InputSchema, &schema); err != nil {
			t.Fatal(err)
		}
		for name, prop := range schema.Properties {
			if len(prop.Enum) > 0 {
				prop.Type = "string"
			}
			use, ok := expr[prop.Type]
			if !ok {
				continue
			}
			n++
			text := fmt.Sprintf(`@id("a") @reason("r") permit (principal, action == Action::"tool.call", resource) when { context.args has %s && `+use+" };", name, name)
			set, err := policy.Compile([]policy.Source{{Name: d.Name, Text: []byte(text)}})
			if err != nil {
				t.Errorf("argument %s of %s: %v", name, d.Name, err)
			} else if len(set.Warnings()) > 0 {
				t.Errorf("argument %s of %s is missing in type Args of agentos.cedarschema", name, d.Name)
			}
		}
	}
	if n == 0 {
		t.Error("no tool has an argument")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(defaultText))
	f.Add([]byte(one + "  want: deny\n  args: {a: [1, {b: c}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cases, err := Parse(policy.Source{Name: "f", Text: text})
		if err != nil {
			if err.Error() == "" {
				t.Fatal("empty error")
			}
			return
		}
		policy.RunTests(nil, cases)
	})
}
