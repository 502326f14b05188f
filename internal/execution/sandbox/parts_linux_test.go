package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentos/internal/execution/profile"
	"agentos/internal/lib/fault"
)

func TestForeignSockets(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		host   []string
		change func(*Request)
		want   string // in the error; empty: it builds
	}{
		"none":              {nil, func(*Request) {}, ""},
		"a socket":          {[]string{"/home/u/w/sub/s.sock", "socket"}, func(*Request) {}, `"/home/u/w/sub/s.sock"`},
		"a FIFO":            {[]string{"/home/u/w/f", "fifo"}, func(*Request) {}, `"/home/u/w/f"`},
		"a device":          {[]string{"/home/u/w/d", "device"}, func(*Request) {}, ""},
		"in --ro":           {[]string{"/srv/data/s", "socket"}, func(r *Request) { r.RO = []string{"/srv/data"} }, `"/srv/data/s"`},
		"in a profile":      {[]string{"/srv/data/s", "socket"}, func(r *Request) { r.Profile.Read = []string{"/srv/data"} }, `"/srv/data/s"`},
		"elsewhere":         {[]string{"/srv/data/s", "socket"}, func(*Request) {}, ""},
		"denied":            {[]string{"/home/u/w/sub/s", "socket"}, func(r *Request) { r.Deny = []string{"/home/u/w/sub"} }, ""},
		"left out beside":   {[]string{"/home/u/w/s", "socket"}, func(r *Request) { r.Deny = []string{"/home/u/w/sub"} }, ""},
		"allowed":           {[]string{"/home/u/w/sub/s", "socket"}, func(r *Request) { r.Sockets = []string{"/home/u/w/sub"} }, ""},
		"the socket itself": {[]string{"/home/u/w/sub/s", "socket"}, func(r *Request) { r.Sockets = []string{"/home/u/w/sub/s"} }, ""},
		"allowed above":     {[]string{"/home/u/w/sub/s", "socket"}, func(r *Request) { r.Sockets = []string{"/home/u"} }, ""},
		"another allowed":   {[]string{"/home/u/w/s", "socket"}, func(r *Request) { r.Sockets = []string{"/home/u/w/sub"} }, `"/home/u/w/s"`},
		"name with escapes": {[]string{"/home/u/w/\x1b[2J", "socket"}, func(*Request) {}, `"/home/u/w/\x1b[2J"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Build(ask(t, tc.change), debian(tc.host...))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if err != nil && !strings.Contains(fault.NextOf(err), "--allow-sockets") {
				t.Errorf("next step %q", fault.NextOf(err))
			}
		})
	}
}

// TestManySockets: a message names a few and counts the rest.
func TestManySockets(t *testing.T) {
	t.Parallel()
	h := debian()
	for i := range 20 {
		h[fmt.Sprintf("/home/u/w/s%02d", i)] = "socket"
	}
	if _, err := Build(ask(t), h); err == nil || !strings.Contains(err.Error(), "and 15 more") {
		t.Errorf("got %v", err)
	}
}

// deepHost has a folder in each folder, for ever.
type deepHost struct{ fake }

func (d deepHost) ReadDir(p string, limit int) ([]Entry, error) {
	if strings.HasPrefix(p, "/home/u/w") {
		e, _ := d.entry("/usr")
		e.Name = "d"
		return []Entry{e}, nil
	}
	return d.fake.ReadDir(p, limit)
}

func TestWalkIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := Build(ask(t), deepHost{debian()}); fault.KindOf(err) != fault.Limit {
		t.Errorf("endless folders: %v", err)
	}
	h := debian()
	for i := range maxSiblings + 1 {
		h[fmt.Sprintf("/home/u/w/f%d", i)] = "f"
	}
	if _, err := Build(ask(t, func(r *Request) { r.Deny = []string{"/home/u/w/a.txt"} }), h); fault.KindOf(err) != fault.Limit {
		t.Errorf("many siblings: %v", err)
	}
	loop := debian("/home/u/a", "-> b", "/home/u/b", "-> a")
	if _, err := Build(ask(t, func(r *Request) { r.RO = []string{"/home/u/a"} }), loop); err == nil {
		t.Error("a loop of links was followed")
	}
}

func TestProgram(t *testing.T) {
	t.Parallel()
	npm := []string{"/home/u/.nvm/v22/bin/agent", "-> ../lib/node_modules/@x/agent/cli.js", "/home/u/.nvm/v22/lib/node_modules/@x/agent/cli.js", "exec", "/home/u/.nvm/v22/bin/node", "exec", "/home/u/.nvm/v22/bin/other", "exec"}
	venv := []string{"/home/u/.local/bin/agent", "-> ../share/pipx/venvs/agent/bin/agent", "/home/u/.local/share/pipx/venvs/agent/bin/agent", "exec",
		"/home/u/.local/share/pipx/venvs/agent/pyvenv.cfg", "f", "/home/u/.local/share/pipx/venvs/agent/bin/python3", "-> /home/u/.local/py/bin/python3.13", "/home/u/.local/py/bin/python3.13", "exec", "/home/u/.local/py/lib/os.py", "f"}
	one := []string{"/home/u/.local/bin/agent", "exec", "/home/u/.local/bin/other", "exec"}
	for name, tc := range map[string]struct {
		host    []string
		path    string
		command string
		pack    bool
		argv0   string
		see     map[string]string
		want    string
	}{
		"by name":            {nil, "/usr/bin", "git", false, "git", nil, ""},
		"in a folder beside": {nil, "", "/usr/local/go/bin/go", false, "/usr/local/go/bin/go", nil, ""},
		"by another name":    {nil, "/home/u/bin2", "g", false, "", nil, "find program"},
		"a link to the system": {[]string{"/home/u/bin2/g", "-> /usr/bin/git"}, "/home/u/bin2", "g", false, "/usr/bin/git",
			map[string]string{"/home/u/bin2/g": ""}, ""},
		"in the workspace":        {[]string{"/home/u/w/run.sh", "exec"}, "", "./run.sh", false, "/home/u/w/run.sh", nil, ""},
		"not by an empty entry":   {[]string{"/home/u/w/git2", "exec", "/git2", "exec"}, ":.", "git2", false, "", nil, "find program"},
		"not executable":          {nil, "", "./a.txt", false, "", nil, "find program"},
		"npm, refused":            {npm, "/home/u/.nvm/v22/bin", "agent", false, "", nil, "not in the sandbox"},
		"npm":                     {npm, "/home/u/.nvm/v22/bin", "agent", true, "/home/u/.nvm/v22/lib/node_modules/@x/agent/cli.js", map[string]string{"/home/u/.nvm/v22/bin/node": "r", "/home/u/.nvm/v22/bin/other": "", "/home/u/.ssh/id": ""}, ""},
		"Python environment":      {venv, "/home/u/.local/bin", "agent", true, "/home/u/.local/share/pipx/venvs/agent/bin/agent", map[string]string{"/home/u/.local/py/lib/os.py": "r", "/home/u/.local/bin/agent": ""}, ""},
		"one file":                {one, "/home/u/.local/bin", "agent", true, "/home/u/.local/bin/agent", map[string]string{"/home/u/.local/bin/other": "", "/home/u/.local/bin/agent": "r"}, ""},
		"installed by the agent":  {[]string{"/state/homes/p/.local/bin/agent", "exec"}, "", "agent", true, "agent", nil, ""},
		"the whole home, refused": {[]string{"/home/u/node_modules/x/cli.js", "exec", "/home/u/pyvenv.cfg", "f", "/home/u/go", "-> bin/mine"}, "/home/u", "go", true, "", nil, "whole home"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Build(ask(t, func(r *Request) {
				r.Command, r.Owner.Path, r.Home = []string{tc.command}, tc.path, "/state/homes/p"
				if tc.pack {
					r.Profile.Program = profile.Package
				}
			}), debian(tc.host...))
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("got %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Plan.Command[0] != tc.argv0 {
				t.Errorf("argv[0] is %q, want %q", got.Plan.Command[0], tc.argv0)
			}
			for p, want := range tc.see {
				if how := sees(got.Plan, p); how != want {
					t.Errorf("%s: %q, want %q", p, how, want)
				}
			}
		})
	}
}

func TestLandlockOnly(t *testing.T) {
	t.Parallel()
	got := mustBuild(t, ask(t, func(r *Request) {
		r.Strength, r.Home, r.Tmp, r.RW = LandlockOnly, "/state/homes/p", "/state/tmp", []string{"/home/u/w"}
		r.Identity.UID, r.Identity.GID = 1000, 1000
	}), debian(repo("/home/u/w")...))
	for _, m := range got.Plan.Mounts {
		if m.Kind != Dev && (m.Kind != Bind || m.Source != m.Target) {
			t.Errorf("%+v can't be had without namespaces", m)
		}
	}
	for _, want := range []string{"this is the weakest strength", "can't keep /home/u/w/.git/hooks"} {
		if !noticed(got, want) {
			t.Errorf("no notice with %q: %q", want, got.Notices)
		}
	}
	if got.Plan.Identity.Home != "/state/homes/p" {
		t.Errorf("home is %s", got.Plan.Identity.Home)
	}
	for _, p := range secrets {
		if how := sees(got.Plan, p); how != "" {
			t.Errorf("%s is visible (%s)", p, how)
		}
	}
}

func TestSecretsOfTheCallerStayOut(t *testing.T) {
	t.Parallel()
	got := mustBuild(t, ask(t, func(r *Request) {
		r.Profile.Pass = []string{"MY_*", "TERM"}
		r.Owner.Env = map[string]string{"MY_API_KEY": "sk-2", "MY_VAR": "v", "TERM": "x\x1b]0;spoof\a", "HOME": "/root"}
	}), debian())
	env := strings.Join(got.Plan.Env, "\n")
	if strings.Contains(env, "sk-2") || strings.Contains(env, "spoof") || strings.Contains(env, "/root") || !strings.Contains(env, "MY_VAR=v") {
		t.Errorf("environment: %s", env)
	}
	if !noticed(got, "MY_API_KEY is not passed") {
		t.Errorf("notices: %q", got.Notices)
	}
	for _, n := range got.Notices {
		if strings.Contains(n, "sk-2") {
			t.Errorf("a notice shows a secret: %s", n)
		}
	}
}

func TestExplainListsEverything(t *testing.T) {
	t.Parallel()
	p := mustBuild(t, ask(t, func(r *Request) { r.RW = []string{"/home/u/w"} }), debian(repo("/home/u/w")...)).Plan
	have := map[string]string{}
	for _, l := range Explain(p) {
		have[l.Section+" "+l.Subject] = l.Access
	}
	for _, m := range p.Mounts {
		if have["files "+m.Target] == "" {
			t.Errorf("%s is not explained", m.Target)
		}
	}
	for k, want := range map[string]string{
		"files /home/u/w": "read, write, exec", "files /home/u/w/.git/hooks": "read, exec", "files everything else": "absent", "limits pids": "512",
		"limits memory": "4G", "limits cpu": "as on the host", "kernel nested namespaces": "refused", "files /tmp": "read, write, exec, private, at most 1G", "files /bin": "link to usr/bin",
	} {
		if have[k] != want {
			t.Errorf("%s: %q, want %q", k, have[k], want)
		}
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("12345"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "p"), 0o600); err != nil {
		t.Fatal(err)
	}
	var h Local
	list, err := h.ReadDir(dir, 3)
	if err != nil || len(list) != 3 || !list[0].isRegular() || !list[1].isLink() || !special(list[2]) {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := h.ReadDir(dir, 2); err != ErrMany {
		t.Errorf("three of two: %v", err)
	}
	if _, err := h.ReadFile(filepath.Join(dir, "f"), 4); err != ErrMany {
		t.Errorf("five bytes of four: %v", err)
	}
	if data, err := h.ReadFile(filepath.Join(dir, "f"), 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := h.ReadFile(filepath.Join(dir, "p"), 5); err == nil {
		t.Error("a FIFO was read")
	}
	if real, e, err := resolve(h, filepath.Join(dir, "l")); err != nil || filepath.Base(real) != "f" || !e.Exec {
		t.Errorf("%s %+v %v", real, e, err)
	}
}
