package policy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/google/go-cmp/cmp"
)

func TestFmt(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"empty", " \n", ""},
		{"one comment", "  // x  \n\n\n", "// x\n"},
		{"plain", `@id("a")@reason("r")permit(principal,action,resource);`, "@id(\"a\")\n@reason(\"r\")\npermit (principal, action, resource);\n"},
		{"bare annotation", `@a @permit("x") forbid(principal,action,resource);`, "@a\n@permit(\"x\")\nforbid (principal, action, resource);\n"},
		{"scope", `permit(principal is Agent in Owner::"uid:1",action in[Action::"a",Action::"b"],resource==Tool::"t",);`,
			"permit (\n    principal is Agent in Owner::\"uid:1\",\n    action in [Action::\"a\", Action::\"b\"],\n    resource == Tool::\"t\",\n);\n"},
		{"conditions", `permit(principal,action,resource)when{a.b["c"]==-1-2&&(x||!y)&&{"k":[1,2]}has k}unless{ip("::1").isLoopback()};`,
			"permit (principal, action, resource)\nwhen {\n    a.b[\"c\"] == -1 - 2 &&\n    (x || !y) &&\n    {\"k\": [1, 2]} has k\n}\nunless {\n    ip(\"::1\").isLoopback()\n};\n"},
		{"comments", "// head\n\n// about a\n@id(\"a\") // trailing\n// above\npermit ( // open\nprincipal, // p\n// own\naction,resource // r\n) // closed\nwhen { // w\n// first\ntrue // t\n&& // and\nfalse /* f */\n// last\n}; // end\n// tail",
			"// head\n\n// about a\n@id(\"a\") // trailing\n// above\npermit ( // open\n    principal, // p\n    // own\n    action,\n    resource // r\n) // closed\nwhen { // w\n    // first\n    true // t\n    && // and\n    false /* f */\n    // last\n}; // end\n\n// tail\n"},
		{"blank lines", "// a\npermit(principal,action,resource);forbid(principal,action,resource);\n\n\n\n// b\n\n\n// c\n\n\n\npermit(principal,action,resource);",
			"// a\npermit (principal, action, resource);\n\nforbid (principal, action, resource);\n\n// b\n\n// c\n\npermit (principal, action, resource);\n"},
		{"comment in a list", "permit(principal,action in [ // both\nAction::\"a\",\n// and\nAction::\"b\"],resource);",
			"permit (\n    principal,\n    action in [ // both\n        Action::\"a\",\n        // and\n        Action::\"b\"],\n    resource\n);\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := strings.NewReplacer("a.b[", "context.b[", "(x||!y)", "(true||!false)").Replace(tt.in)
			want := strings.NewReplacer("a.b[", "context.b[", "(x || !y)", "(true || !false)").Replace(tt.want)
			got, err := Fmt(src(in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, string(got)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			checkFmt(t, []byte(in))
		})
	}
}

func TestShippedPoliciesAreFormatted(t *testing.T) {
	t.Parallel()
	for _, f := range Default() {
		got, err := Fmt(f)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(f.Text), string(got)); d != "" {
			t.Errorf("(-file +formatted)\n%s", d)
		}
	}
}

func TestFmtRefusesWhatDoesNotParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"permit (", "permit (principal, action);\nforbid;", "/*", "\"", "x", "permit\x00"} {
		if out, err := Fmt(src(text)); err == nil {
			t.Errorf("%q became %q", text, out)
		} else if !strings.Contains(err.Error(), "p.cedar") {
			t.Errorf("%q: error names no file: %v", text, err)
		}
	}
}

// TestFmtKeepsEverything lays random policies out at random, with comments
// between any two tokens, and formats them.
func TestFmtKeepsEverything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		g := newGen(seed)
		var text strings.Builder
		for range 1 + g.IntN(3) {
			text.WriteString(strings.TrimSuffix(g.policies(1), ";\n"))
			for range g.IntN(3) {
				text.WriteString(pick(g, " when {", " unless {") + g.expr(g.IntN(5)) + "}")
			}
			text.WriteString(";")
		}
		toks, lerr := lex(text.String())
		if lerr != nil {
			t.Fatalf("%v\n%s", lerr, text.String())
		}
		var loose strings.Builder
		comments := 0
		for _, tok := range toks {
			loose.WriteString(tok.text)
			for range g.IntN(3) {
				sep := pick(g, " ", "\n", "\t\r\n", "\n\n", "// c //\n", " // \"x\n\n", "/* b */", "/* two\n  lines */", "\n// own  \n")
				comments += strings.Count(sep, "/*") + strings.Count(strings.Replace(sep, "c //", "", 1), "//")
				loose.WriteString(sep)
			}
			loose.WriteByte(' ')
		}
		out, err := Fmt(src(loose.String()))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, loose.String())
		}
		again, _ := lex(string(out))
		if got := len(again) - len(code(again)); got != comments {
			t.Fatalf("seed %d: %d comments became %d", seed, comments, got)
		}
		checkFmt(t, []byte(loose.String()))
	}
}

// checkFmt: same policies, same comments, idempotent.
func checkFmt(t *testing.T, in []byte) {
	t.Helper()
	out, err := Fmt(Source{Name: "f", Text: in})
	if err != nil {
		return
	}
	again, err := Fmt(Source{Name: "f", Text: out})
	if err != nil {
		t.Fatalf("formatted text doesn't format: %v\n%s", err, out)
	}
	if !bytes.Equal(out, again) {
		t.Fatalf("not idempotent:\n%s", cmp.Diff(string(out), string(again)))
	}
	a, err := cedar.NewPolicyListFromBytes("f", in)
	if err != nil {
		t.Fatalf("formatted what cedar-go refuses: %v", err)
	}
	b, err := cedar.NewPolicyListFromBytes("f", out)
	if err != nil {
		t.Fatalf("cedar-go refuses the formatted text: %v", err)
	}
	samePolicies(t, a, b)
}

func samePolicies(t *testing.T, a, b cedar.PolicyList) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d policies became %d", len(a), len(b))
	}
	for i := range a {
		x, y := (*ast.Policy)(a[i].AST()), (*ast.Policy)(b[i].AST())
		if x.Effect != y.Effect || cmp.Diff(x.Annotations, y.Annotations) != "" || len(x.Conditions) != len(y.Conditions) ||
			!ast.Equal(scopeNode(x), scopeNode(y)) {
			t.Fatalf("policy %d changed", i)
		}
		for j := range x.Conditions {
			if x.Conditions[j].Condition != y.Conditions[j].Condition || !ast.Equal(ast.NewNode(x.Conditions[j].Body), ast.NewNode(y.Conditions[j].Body)) {
				t.Fatalf("condition %d of policy %d changed", j, i)
			}
		}
	}
}

func FuzzFmt(f *testing.F) {
	f.Add(defaultText)
	f.Add([]byte("@a permit(principal,action,resource)when{-1--2==3||[1,/*x*/2].contains(1)};//e"))
	f.Add([]byte("/*a*/ /*b\n*/permit // c\r\n (principal,\n\n// d\naction in[],resource is T in A::B::\"x\",)unless{if true then false else {\"a\":1,b:2}has\"x y\"};"))
	f.Fuzz(checkFmt)
}
