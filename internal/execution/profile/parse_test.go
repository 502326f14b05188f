package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"

	"github.com/google/go-cmp/cmp"
)

const full = `name: x
summary: an agent
commands: [x, "y.sh"]
workspace: write
git: write
program: package
home: private
read: [/data/a]
exec: [~/tools]
write: [$WORKSPACE/out]
env:
  set: {EDITOR: vi, LEVEL: 3, DIR: $HOME/x}
  pass: [TERM, LC_*]
limits: {pids: 20, memory: 1G, cpu: 150%, tmp: 2M, files: 99, file: 1K}
strength: rootless
nested: {allow: true, why: it brings a sandbox}
network: [api.example.com:443, "*.example.org:80"]
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := Parse("x.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := Profile{
		Name: "x", Summary: "an agent", File: "x.yaml", Text: full, Commands: []string{"x", "y.sh"},
		Workspace: Write, Git: Write, Program: Package, Home: Private,
		Read: []string{"/data/a"}, Exec: []string{"~/tools"}, Write: []string{"$WORKSPACE/out"},
		Set: map[string]string{"EDITOR": "vi", "LEVEL": "3", "DIR": "$HOME/x"}, Pass: []string{"TERM", "LC_*"},
		Limits:   sandboxplan.Limits{PIDs: 20, MemoryBytes: 1 << 30, CPUPercent: 150, TmpBytes: 2 << 20, OpenFiles: 99, FileBytes: 1 << 10},
		Strength: sandboxplan.Rootless, Nested: true, Why: "it brings a sandbox", Network: []string{"api.example.com:443", "*.example.org:80"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Spec: C-10. Every list, absent, null and empty, allows nothing; and so do
// absent and null mappings.
func TestEmptyListsAllowNothing(t *testing.T) {
	t.Parallel()
	base := "name: x\n"
	want, err := Parse("f", []byte(base))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if f := v.Field(i); (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() > 0 {
			t.Errorf("%s is not empty by default", v.Type().Field(i).Name)
		}
	}
	if want.Workspace != Read || want.Git != Read || want.Program != Refuse || want.Nested || want.Strength != "" {
		t.Errorf("the defaults give something: %+v", want)
	}
	for _, text := range []string{
		"commands: []", "commands: null", "commands:", "read: []", "read: ~", "read:", "exec: []", "exec: null", "exec:",
		"write: []", "write: null", "write:", "network: []", "network: null", "network:",
		"env:", "env: null", "env: {}", "env: {pass: []}", "env: {pass: null}", "env: {pass: }", "env: {set: {}}", "env: {set: null}",
		"limits:", "limits: null", "limits: {}",
	} {
		got, err := Parse("f", []byte(base+text+"\n"))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got.Text = want.Text
		if len(got.Set) == 0 {
			got.Set = nil
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want, next string }{
		{"name: x\nworkspce: write\n", `f:2: unknown key "workspce"`, "did you mean workspace?"},
		{"name: x\nenv:\n  passs: [A]\n", `f:3: unknown key "passs"`, "did you mean pass?"},
		{"name: x\nlimits: {mem: 1G}\n", `f:2: unknown key "mem"`, ""},
		{"name: x\nnested: {alow: true}\n", `f:2: unknown key "alow"`, "did you mean allow?"},
		{"name: x\nzzzzzzzzzzzz: 1\n", "unknown key", "known are name, summary"},
		{"name: x\nname: y\n", "f:2: ", ""},
		{"name: X y\n", "profile name", ""},
		{"summary: x\n", "profile name", ""},
		{"name: ../x\n", "profile name", ""},
		{"", "no profile", ""},
		{"# nothing\n", "no profile", ""},
		{"- x\n", "not a mapping", ""},
		{"name: x\n---\nname: y\n", "several", ""},
		{"name: [x\n", "f:1", ""},
		{"name: x\nread: /data\n", "f:2: read is not a list", ""},
		{"name: x\nread: [3]\n", "is relative", ""},
		{"name: x\nread: [true]\n", "not text", ""},
		{"name: x\nread: [null]\n", "not text", ""},
		{"name: x\nread: [data]\n", "is relative", ""},
		{"name: x\nread: [/a/../b]\n", "not clean", ""},
		{"name: x\nread: [/a/]\n", "not clean", ""},
		{"name: x\nread: [/a/*]\n", "pattern", ""},
		{"name: x\nread: [/]\n", "everything", ""},
		{"name: x\nread: ['~']\n", "everything", ""},
		{"name: x\nread: [~user/x]\n", "is relative", ""},
		{"name: x\nwrite: [$WORKSPACE]\n", "own key", ""},
		{"name: x\nread: [$WORKSPACE/../x]\n", "not clean", ""},
		{"name: x\nread: [$HOME/x]\n", "own home", ""},
		{"name: x\nread: [$XDG_CONFIG_HOME/x]\n", "own home", ""},
		{"name: x\nread: [/$SECRET]\n", "unknown variable", ""},
		{"name: x\nread: [/a, /a]\n", "twice", ""},
		{"name: x\nread: [\"/a\\u001b\"]\n", "control", ""},
		{"name: x\nsummary: \"a\\u202eb\"\n", "control", ""},
		{"name: x\ncommands: [/bin/x]\n", "no program name", ""},
		{"name: x\nworkspace: none\n", `workspace is "none"`, ""},
		{"name: x\nworkspace: null\n", "not text", ""},
		{"name: x\nworkspace: true\n", "not text", ""},
		{"name: x\nstrength: landlock-only\n", "strength is", ""},
		{"name: x\nenv: {pass: [OPENAI_API_KEY]}\n", "like a secret", ""},
		{"name: x\nenv: {pass: [GH_TOKEN]}\n", "like a secret", ""},
		{"name: x\nenv: {pass: ['*']}\n", "names no variable", ""},
		{"name: x\nenv: {pass: ['A*']}\n", "nearly everything", ""},
		{"name: x\nenv: {pass: [PATH]}\n", "not the caller's", ""},
		{"name: x\nenv: {set: {ANTHROPIC_API_KEY: x}}\n", "like a secret", ""},
		{"name: x\nenv: {set: {HOME: /x}}\n", "not a profile's", ""},
		{"name: x\nenv: {set: {A-B: x}}\n", "names no variable", ""},
		{"name: x\nenv: {set: {A: [x]}}\n", "not text", ""},
		{"name: x\nenv: {set: [A]}\n", "no such mapping", ""},
		{"name: x\nlimits: {pids: -5}\n", "set limit pids", ""},
		{"name: x\nlimits: {memory: lots}\n", "set limit memory", ""},
		{"name: x\nlimits: {pids: 0}\n", "allows nothing to run", ""},
		{"name: x\nnested: {allow: yes please, why: x}\n", "neither", ""},
		{"name: x\nnested: {allow: true}\n", "no reason", ""},
		{"name: x\nnested: true\n", "not a mapping", ""},
		{"name: x\nnetwork: [example.com]\n", "no such address", ""},
		{"name: x\nnetwork: ['example.com:0']\n", "no such address", ""},
		{"name: &a x\nsummary: *a\n", "not text", ""},
		{"name: !!str x\n", "not text", ""},
		{"name: x\n<<: {read: [/a]}\n", "not plain text", ""},
		{"name: x\nread: " + strings.Repeat("[", 20) + strings.Repeat("]", 20), "nests deeper", ""},
		{"name: x\n# " + strings.Repeat("x", MaxFile), "too large", ""},
		{"name: x\nread: [" + entries(maxEntries+1) + "]\n", "entries", ""},
		{"name: x\nsummary: " + strings.Repeat("x", maxText+1) + "\n", "too long", ""},
		{"name: x\nsummary: \"\xff\"\n", "UTF-8", ""},
	} {
		_, err := Parse("f", []byte(tc.text))
		short := tc.text[:min(len(tc.text), 60)]
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %q", short, err, tc.want)
			continue
		}
		if next := nextOfJoined(err); next == "" || !strings.Contains(next, tc.next) {
			t.Errorf("%q: next step %q, want %q", short, next, tc.next)
		}
	}
}

func nextOfJoined(err error) string {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return fault.NextOf(j.Unwrap()[0])
	}
	return fault.NextOf(err)
}

func entries(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("/p%d", i))
	}
	return strings.Join(out, ", ")
}

func TestBuiltin(t *testing.T) {
	t.Parallel()
	s, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range s.All() {
		names = append(names, p.Name)
		if p.Summary == "" || p.Why == "" || p.Limits.PIDs == 0 || p.Limits.MemoryBytes == 0 || p.File != BuiltIn {
			t.Errorf("%s: no summary, reason or limits", p.Name)
		}
		if !strings.HasPrefix(p.Text, "# ") {
			t.Errorf("%s: the file does not begin by explaining itself", p.Name)
		}
		for _, c := range p.Commands {
			if got, err := s.For("/some/where/" + c); err != nil || got.Name != p.Name {
				t.Errorf("command %q chooses %q, %v", c, got.Name, err)
			}
		}
	}
	want := []string{"aider", "claude-code", "codex", "gemini-cli", "generic", "goose", "opencode", "pi", "qwen-code"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	if p, err := s.For("nobody-knows-this"); err != nil || p.Name != Generic {
		t.Errorf("an unknown command chooses %q, %v", p.Name, err)
	}
	if _, err := s.Get("claude-cod"); fault.KindOf(err) != fault.NotFound || !strings.Contains(fault.NextOf(err), "claude-code") {
		t.Errorf("%v, next %q", err, fault.NextOf(err))
	}
}

func TestLoadDirectory(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	s, err := Load(write(t, map[string]string{
		"codex.yaml": "name: codex\ncommands: [codex, qwen]\n", "mine.yaml": "name: mine\ncommands: [mine]\n",
		"notes.txt": "not a profile", ".hidden.yaml": "not a profile",
	}))
	if err != nil {
		t.Fatal(err)
	}
	for cmd, want := range map[string]string{"codex": "codex", "qwen": "codex", "mine": "mine", "claude": "claude-code"} {
		if p, err := s.For(cmd); err != nil || p.Name != want {
			t.Errorf("%s chooses %q, %v", cmd, p.Name, err)
		}
	}
	if p, _ := s.Get("codex"); p.File == BuiltIn || p.Workspace != Read {
		t.Errorf("an own profile does not replace the built-in one: %+v", p)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "absent")); err != nil {
		t.Errorf("absent folder: %v", err)
	}
	for want, files := range map[string]map[string]string{
		"is named":    {"a.yaml": "name: b\n"},
		"unknown key": {"a.yaml": "name: a\nx: 1\n"},
		"is in \"a\"": {"a.yaml": "name: a\ncommands: [z]\n", "b.yaml": "name: b\ncommands: [z]\n"},
	} {
		if _, err := Load(write(t, files)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestOthersCanWriteIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte("name: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); fault.KindOf(err) != fault.Denied {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "b.yaml")
	if err := os.WriteFile(outside, []byte("name: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, file); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a link that leads out of the folder was followed")
	}
}

// FuzzParse: no bytes crash the parser, and what it takes obeys the rules.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	files, _ := filepath.Glob("builtin/*.yaml")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("name: x\nread: [[[{a: b}]]]\n&a *a <<: !!x |\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("f", data)
		if err != nil {
			return
		}
		if !IsName(p.Name) || p.Strength == sandboxplan.LandlockOnly || p.Nested && p.Why == "" {
			t.Fatalf("%+v", p)
		}
		for _, list := range [][]string{p.Read, p.Exec, p.Write} {
			for _, s := range list {
				if s == "/" || strings.Contains(s, "/../") || strings.HasSuffix(s, "/..") || strings.ContainsAny(s, "\x00\n\x1b") {
					t.Fatalf("path %q", s)
				}
			}
		}
		for _, s := range p.Pass {
			if sandboxplan.SecretName(strings.TrimSuffix(s, "*")) {
				t.Fatalf("passes %q", s)
			}
		}
		for s := range p.Set {
			if sandboxplan.SecretName(s) {
				t.Fatalf("sets %q", s)
			}
		}
	})
}
