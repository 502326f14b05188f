package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
)

func keyMap() map[string]key {
	m := map[string]key{}
	for _, k := range table() {
		m[k.name] = k
	}
	return m
}

func TestFileProblems(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, msg string }{
		"syntax":            {"agent:\n  id: [a\n", "f:"},
		"tab":               {"agent:\n\tid: a\n", "f:2:"},
		"unknown section":   {"agents:\n  id: a\n", `f:1: unknown key "agents"`},
		"unknown deep":      {"agent:\n  limits:\n    iteration: 3\n", `f:3: unknown key "agent.limits.iteration"`},
		"duplicate":         {"agent:\n  id: a\n  id: b\n", "f:3:"},
		"duplicate section": {"agent:\n  id: a\nmodel: {}\nagent:\n  id: b\n", "f:4:"},
		"dotted":            {"agent.id: a\n", `f:1: key "agent.id" holds a dot`},
		"section as value":  {"agent: 5\n", `f:1: "agent" is not a section`},
		"list as file":      {"- a\n", "f:1: the file is not a section"},
		"text for number":   {"agent:\n  uid: '5'\n", "f:2: agent.uid takes a whole number"},
		"float":             {"agent:\n  uid: 5.0\n", "f:2: agent.uid takes a whole number"},
		"number for text":   {"agent:\n  id: 5\n", "f:2: agent.id takes text"},
		"null for text":     {"agent:\n  id:\n", "f:2: agent.id takes text"},
		"text for bool":     {"model:\n  stream: 'true'\n", "f:2: model.stream takes true or false"},
		"text for list":     {"audit:\n  anchors: journald\n", "f:2: audit.anchors takes a list"},
		"map in list":       {"audit:\n  anchors:\n    - a: b\n", "f:3: audit.anchors: an entry is not text"},
		"null in list":      {"audit:\n  anchors:\n    - null\n", "an entry is not text"},
		"anchor":            {"agent: &x\n  id: a\n", "f:1:"},
		"alias value":       {"agent:\n  id: &x a\nproject: *x\n", "f:2: agent.id takes text"},
		"merge":             {"agent:\n  <<: {id: a}\n", "f:2: key"},
		"tag":               {"agent:\n  id: !!str a\n", "f:2: agent.id takes text"},
		"two documents":     {"project: a\n---\nproject: b\n", "documents"},
		"map for scalar":    {"project: {a: b}\n", "f:1: project takes text"},
	} {
		_, probs := parseFile("f", []byte(tc.text), keyMap())
		if len(probs) == 0 {
			t.Errorf("%s: no problem", name)
			continue
		}
		if !strings.Contains(probs[0].Error(), tc.msg) || fault.NextOf(probs[0]) == "" {
			t.Errorf("%s: %q, want %q and a next step", name, probs[0], tc.msg)
		}
	}
}

func TestFileChecks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "good.yaml"), "project: a\n")
	open := write(t, filepath.Join(dir, "open.yaml"), "project: a\n")
	if err := os.Chmod(open, 0o646); err != nil {
		t.Fatal(err)
	}
	foreign := write(t, filepath.Join(dir, "foreign.yaml"), "project: a\n")
	big := write(t, filepath.Join(dir, "big.yaml"), "# "+strings.Repeat("x", MaxFile)+"\n")
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	rel := write(t, filepath.Join(dir, "rel.yaml"), "state_dir: x\n")
	cases := map[string]struct {
		path string
		kind fault.Kind
		msg  string
	}{
		"good": {good, "", ""}, "open": {open, fault.Denied, "everybody can write"}, "big": {big, fault.Limit, "too large"},
		"fifo": {fifo, fault.Usage, "not a regular file"}, "directory": {dir, fault.Usage, "not a regular file"},
		"under a file": {good + "/x", fault.NotFound, "open configuration"}, "relative path inside": {rel, fault.Usage, "rel.yaml:1: state_dir: path \"x\" is relative"},
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		cases["foreign"] = struct {
			path string
			kind fault.Kind
			msg  string
		}{foreign, fault.Denied, "belongs to UID 12345"}
	}
	for name, tc := range cases {
		_, err := Load(Sources{Home: "/h", Dir: "/elsewhere", Sets: []setting.Set{{Key: "config", Value: tc.path, Flag: "--config"}}})
		if fault.KindOf(err) != tc.kind || (err != nil && (!strings.Contains(err.Error(), tc.msg) || fault.NextOf(err) == "")) {
			t.Errorf("%s: %s %v", name, fault.KindOf(err), err)
		}
	}
}

// The reference file names every key with its default.
func TestReferenceFile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/config.reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	vals, probs := parseFile("config.reference.yaml", data, keyMap())
	for _, p := range probs {
		t.Error(p)
	}
	seen := map[string]raw{}
	for _, v := range vals {
		seen[v.key] = v.raw
	}
	// Keys without a default stand in comments.
	var bare []string
	for _, line := range strings.Split(string(data), "\n") {
		bare = append(bare, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	text := "\n" + strings.Join(bare, "\n")
	for _, k := range table() {
		r, ok := seen[k.name]
		if ok && k.shape != shapeList && r.text != k.def {
			t.Errorf("%s is %q in the reference, its default is %q", k.name, r.text, k.def)
		}
		if ok && k.shape == shapeList && strings.Join(r.list, ",") != k.def {
			t.Errorf("%s is %q in the reference, its default is %q", k.name, r.list, k.def)
		}
		leaf := k.name[strings.LastIndex(k.name, ".")+1:]
		if !ok && (k.def != "" || !strings.Contains(text, "\n"+leaf+":")) {
			t.Errorf("%s is not in the reference", k.name)
		}
		for _, e := range k.env {
			if !strings.Contains(string(data), e) {
				t.Errorf("%s: %s is not in the reference", k.name, e)
			}
		}
	}
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{"", "agent:\n  id: a\n", "a: &x [*x]\n", "? [a]\n: b\n", "tools: {service_allowlist: [a, b]}\n",
		"model:\n  timeout: 1m\n---\n", "budgets:\n  owner: {tokens: 0x10}\n", "<<: *a", "a: |\n  b\n", "!!binary a: b", "%YAML 1.2\n---\n"} {
		f.Add([]byte(s))
	}
	keys := keyMap()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		vals, probs := parseFile("f", data, keys)
		for _, p := range probs {
			if fault.KindOf(p) != fault.Usage || fault.NextOf(p) == "" || !strings.HasPrefix(p.Error(), "f:") {
				t.Errorf("a problem without place or next step: %v", p)
			}
		}
		seen := map[string]bool{}
		for _, v := range vals {
			if _, ok := keys[v.key]; !ok || seen[v.key] {
				t.Errorf("key %q unknown or twice", v.key)
			}
			seen[v.key] = true
		}
	})
}
