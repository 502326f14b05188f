package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustCompile(t testing.TB, files ...Source) *Set {
	t.Helper()
	s, err := Compile(files)
	if err != nil {
		t.Fatalf("compile:\n%v", err)
	}
	return s
}

func src(text string) Source { return Source{Name: "p.cedar", Text: []byte(text)} }

func agentCall(trust, tool, effect, args string) Request {
	return Request{
		Principal: Principal{Owner: 1000, Agent: "helper", Trust: trust},
		Action:    "tool.call",
		Resource:  Resource{Type: "Tool", Name: tool, Effect: effect},
		Args:      []byte(args),
	}
}

func TestDefaultCompilesWithoutWarnings(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Default()...)
	if len(s.Warnings()) != 0 {
		t.Errorf("warnings: %v", s.Warnings())
	}
	if got := s.Policies(); len(got) != 8 || !strings.HasPrefix(got[0].Text, `@id("owner-starts-own-agent")`) || !strings.HasSuffix(got[7].Text, "};") {
		t.Errorf("listing: %+v", got)
	}
}

// Spec: C-10, INV-02.
func TestEmptySetsDenyAll(t *testing.T) {
	t.Parallel()
	req := agentCall("normal", "system_inspect", "read", "{}")
	sets := map[string]*Set{
		"absent":        nil,
		"zero":          {},
		"no files":      mustCompile(t),
		"empty list":    mustCompile(t, []Source{}...),
		"nil text":      mustCompile(t, Source{Name: "a"}),
		"empty text":    mustCompile(t, src("")),
		"white space":   mustCompile(t, src(" \n\t\r\n")),
		"only comments": mustCompile(t, src("// permit (principal, action, resource);\n/* nothing */")),
	}
	for name, s := range sets {
		if d := s.Decide(req); d.Allow || len(d.Rules) != 0 {
			t.Errorf("%s: %+v", name, d)
		}
		if x := s.Explain(req); x.Allow || x.Next == "" {
			t.Errorf("%s: explain %+v", name, x)
		}
	}
	if d := (*Set)(nil).Decide(req); len(d.Errors) == 0 {
		t.Error("an absent set is no error")
	}
	if mustCompile(t).Revision() != mustCompile(t, src("// x")).Revision() {
		t.Error("empty sets have different revisions")
	}
}

const good = `@id("a") @reason("r") permit (principal, action, resource);`

func TestCompileReportsEverything(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string // "line:col severity policy message part"
	}{
		{"missing id", "permit (principal, action, resource);", []string{`1:1 error  no @id`, `1:1 warning  no @reason`}},
		{"duplicate id", good + "\n" + good, []string{`2:2 error a already used at p.cedar:1`}},
		{"bad id", strings.Replace(good, `"a"`, `"a b"`, 1), []string{`1:2 error a b is not a name`}},
		{"unknown annotation", "@aproval(\"owner\") " + good, []string{`1:2 error a annotation @aproval is unknown`}},
		{"unknown obligation", "@approval(\"nobody\") " + good, []string{`1:2 error a @approval "nobody" is unknown`}},
		{"obligation on a forbid", "@approval(\"owner\") " + strings.Replace(good, "permit", "forbid", 1), []string{`1:2 error a no meaning on a forbid`}},
		{"unknown action", strings.Replace(good, "action", `action == Action::"tool.cal"`, 1), []string{`1:1 error a unable to find an applicable action`, `1:60 error a unrecognized action`}},
		{"unknown type", strings.Replace(good, "principal", `principal is Robot`, 1), []string{`1:1 error a unable to find`, `1:44 error a unrecognized entity type`}},
		{"impossible scope", strings.Replace(good, "principal", `principal is Tool`, 1), []string{`error a unable to find an applicable action`}},
		{"impossible pair", strings.Replace(good, "principal, action", `principal is Owner, action == Action::"tool.call"`, 1), []string{`error a unable to find an applicable action`}},
		{"unknown attribute", cond("principal is Agent", `principal.trsut == "normal"`), []string{`2:18 error a attribute`}},
		{"unknown has", cond("principal is Agent", `principal has trsut`), []string{`2:22 error a declared nowhere`}},
		{"unknown trust", cond("principal is Agent", `principal.trust == "norml"`), []string{`2:27 error a "norml" is no trust`}},
		{"unknown effect in a set", `@id("a") @reason("r") permit (principal, action, resource is Tool) when { ["read", "wirte"].contains(resource.effect) };`, []string{`error a "wirte" is no effect`}},
		{"different types", cond("principal is Agent", `principal.trust == 1`), []string{`1:1 error a the types Long and String`}},
		{"entity of other type", cond("principal is Agent", `principal.owner == principal`), []string{`error a are never equal: Owner and Agent`}},
		{"owner has no trust", cond("principal is Owner", `principal.trust == "normal"`), []string{`error a attribute`}},
		{"unguarded argument", cond("principal is Agent", `context.args.depth < 5`), []string{`warning a no built-in tool has an argument "depth"; taken as Long`, `2:21 error a optional attribute model.generate`, `2:21 error a optional attribute tool.call`}},
		{"guarded argument", cond("principal is Agent", `context.args has depth && context.args.depth < 5`), []string{`2:25 warning a no built-in tool`}},
		{"declared argument", cond("principal is Agent", `context.args has lines && context.args.lines < 5`), nil},
		{"declared argument of other type", cond("principal is Agent", `context.args has lines && context.args.lines like "x"`), []string{`error a expected String but saw Long`}},
		{"condition is no bool", cond("principal is Agent", `principal.trust`), []string{`error a expected Bool but saw String`}},
		{"syntax", "permit (principal, action);\n" + good + "\nforbit (principal, action, resource);", []string{`1:26 error  expected ",", found ")"`, `3:1 error  unexpected effect`}},
		{"syntax and types", "permit (;\n" + strings.Replace(good, "principal", `principal is Robot`, 1), []string{`1:9 error  expected "principal"`, `2:1 error a unable to find`, `2:44 error a unrecognized entity type`}},
		{"missing semicolon", strings.TrimSuffix(good, ";"), []string{`1:58 error  expected ";" after this`}},
		{"open string", "@id(\"a\n", []string{`1:5 error  string is not closed`}},
		{"open comment", good + "/* x", []string{`error  comment is not closed`}},
		{"not text", "permit\xff", []string{`1:7 error  invalid character`}},
		{"nul", "permit\x00", []string{`1:7 error  invalid character`}},
		{"too deep", cond("principal is Agent", strings.Repeat("(", 70)+"true"+strings.Repeat(")", 70)), []string{`1:1 error  nested 71 deep`}},
		{"too many prefixes", cond("principal is Agent", strings.Repeat("!", 100_000)+"true"), []string{`tokens, limit`}},
		{"too many ifs", cond("principal is Agent", strings.Repeat("if true then ", 100)+"true"), []string{`nested 101 deep`}},
		{"too long", cond("principal is Agent", "true"+strings.Repeat(" && true", 20_000)), []string{`tokens, limit 16384`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := Compile([]Source{src(tt.text)})
			var ps Problems
			if err == nil {
				ps = s.Warnings()
			} else if !errors.As(err, &ps) {
				t.Fatalf("error is a %T: %v", err, err)
			}
			if failed := err != nil; failed != strings.Contains(strings.Join(tt.want, "\n"), "error") && len(tt.want) > 0 && strings.Contains(tt.want[0], "error") {
				t.Errorf("compile failed: %v", failed)
			}
			var got []string
			for _, p := range ps {
				got = append(got, fmt.Sprintf("%d:%d %s %s %s", p.Line, p.Column, p.Severity, p.Policy, p.Message))
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %d problems:\n%s\nwant\n%s", len(got), strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			for i, w := range tt.want {
				if !inOrder(got[i], w) {
					t.Errorf("got  %s\nwant %s", got[i], w)
				}
			}
		})
	}
}

// inOrder reports whether the words of want occur in got in that order.
func inOrder(got, want string) bool {
	for _, w := range strings.Fields(want) {
		_, rest, ok := strings.Cut(got, w)
		if !ok {
			return false
		}
		got = rest
	}
	return true
}

func cond(principal, expr string) string {
	return strings.Replace(good, "principal", principal, 1)[:len(good)-len("principal")+len(principal)-1] + "\nwhen { " + expr + " };"
}

func TestCompileOverManyFiles(t *testing.T) {
	t.Parallel()
	_, err := Compile([]Source{
		{Name: "z.cedar", Text: []byte("permit (;")},
		{Name: "a.cedar", Text: []byte(good)},
		{Name: "b.cedar", Text: []byte(good)},
		{Name: "c.cedar", Text: make([]byte, MaxFileBytes+1)},
	})
	var ps Problems
	if !errors.As(err, &ps) {
		t.Fatal(err)
	}
	var files []string
	for _, p := range ps {
		files = append(files, p.File)
	}
	if d := cmp.Diff([]string{"z.cedar", "b.cedar", "c.cedar"}, files); d != "" {
		t.Errorf("problems by file (-want +got)\n%s\n%v", d, err)
	}
}

// TestRecovery breaks some of many policies: each mistake is found, on its line.
func TestRecovery(t *testing.T) {
	t.Parallel()
	breaks := []func(string) string{
		func(s string) string { return strings.Replace(s, "permit", "permitt", 1) },
		func(s string) string { return strings.Replace(s, "principal", "principle", 1) },
		func(s string) string { return strings.Replace(s, ", action", " action", 1) },
		func(s string) string { return strings.Replace(s, ");", ") when { };", 1) },
		func(s string) string { return strings.Replace(s, ");", ") when { \"\\q\" == 1 };", 1) },
		func(s string) string { return strings.Replace(s, ");", ") when { (1 };", 1) },
		func(s string) string { return strings.Replace(s, ");", ") when { nope(1) };", 1) },
		func(s string) string { return strings.Replace(s, "@id(", "@id(1", 1) },
		func(s string) string { return strings.Replace(s, "@id(", "@a @a @id(", 1) },
		func(s string) string { return strings.Replace(s, ");", ") when { 99999999999999999999 == 1 };", 1) },
	}
	for seed := range uint64(100) {
		g := newGen(seed)
		var b strings.Builder
		var want []int
		for i := range 20 {
			s := strings.Replace(good, `"a"`, fmt.Sprintf(`"p%d"`, i), 1)
			if g.IntN(4) == 0 {
				s = pick(g, breaks...)(s)
				want = append(want, i+1)
			}
			b.WriteString(s + "\n")
		}
		_, err := Compile([]Source{src(b.String())})
		var ps Problems
		if errors.As(err, &ps) != (len(want) > 0) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var got []int
		for _, p := range ps {
			got = append(got, p.Line)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d: lines (-want +got)\n%s%v", seed, d, err)
		}
	}
}

func TestCompileLimits(t *testing.T) {
	t.Parallel()
	files := make([]Source, MaxFiles+1)
	if _, err := Compile(files); err == nil {
		t.Error("too many files are accepted")
	}
	if _, err := Compile([]Source{src(strings.Repeat(" ", MaxFileBytes))}); err != nil {
		t.Errorf("a file at the limit: %v", err)
	}
	if _, err := Compile([]Source{src(strings.Repeat(" ", MaxFileBytes+1))}); err == nil {
		t.Error("a file over the limit is accepted")
	}
	if _, err := Fmt(src(strings.Repeat(" ", MaxFileBytes+1))); err == nil {
		t.Error("a file over the limit is formatted")
	}
	_, err := Compile([]Source{src(strings.Repeat(";", MaxFileBytes))})
	var many Problems
	if !errors.As(err, &many) || len(many) != MaxProblems+1 || !strings.Contains(many[MaxProblems].Message, "not shown") {
		t.Errorf("%d problems", len(many))
	}
	var fs []Source
	n := 0
	for n <= MaxPolicies {
		var b strings.Builder
		for range 5000 {
			fmt.Fprintf(&b, "@id(\"p%d\") @reason(\"r\") permit (principal, action, resource);\n", n)
			n++
		}
		fs = append(fs, Source{Name: fmt.Sprintf("%d.cedar", n), Text: []byte(b.String())})
	}
	_, err = Compile(fs)
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(ps[0].Message, "too many policies") {
		t.Errorf("%d policies: %v", n, err)
	}
	if s := mustCompile(t, fs[:2]...); len(s.Policies()) != MaxPolicies {
		t.Errorf("%d policies", len(s.Policies()))
	}
}

func TestRevision(t *testing.T) {
	t.Parallel()
	a := good
	b := `@id("b") @reason("r") forbid (principal, action, resource) when { context.run == "x" };`
	base := mustCompile(t, src(a+b)).Revision()
	same := map[string][]Source{
		"layout":      {src("// note\n" + strings.ReplaceAll(a, " ", "\n\t") + "/* x */" + b + "\n")},
		"file names":  {{Name: "1", Text: []byte(a)}, {Name: "2", Text: []byte(b)}},
		"order":       {src(b + a)},
		"annotations": {src(strings.Replace(a, `@id("a") @reason("r")`, `@reason("r") @id("a")`, 1) + b)},
	}
	for name, files := range same {
		if got := mustCompile(t, files...).Revision(); got != base {
			t.Errorf("%s changes the revision", name)
		}
	}
	other := map[string]string{
		"one less":  a,
		"effect":    strings.Replace(a, "permit", "forbid", 1) + b,
		"condition": a + strings.Replace(b, `"x"`, `"y"`, 1),
		"when":      a + strings.Replace(b, `when`, `unless`, 1),
		"scope":     strings.Replace(a, "principal", "principal is Agent", 1) + b,
		"id":        strings.Replace(a, `"a"`, `"c"`, 1) + b,
		"reason":    strings.Replace(a, `"r"`, `"s"`, 1) + b,
		"approval":  `@approval("owner") ` + a + b,
	}
	for name, text := range other {
		if got := mustCompile(t, src(text)).Revision(); got == base {
			t.Errorf("%s doesn't change the revision", name)
		}
	}
}
