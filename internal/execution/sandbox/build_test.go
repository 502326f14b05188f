package sandbox

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentos/internal/execution/profile"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden plans anew")

// TestGolden pins the plan of each built-in profile on a small Debian.
func TestGolden(t *testing.T) {
	t.Parallel()
	s, err := profile.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.All() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			h := debian(repo("/home/u/w")...)
			mods := "/home/u/.npm/lib/node_modules"
			h[mods+"/pkg/cli.js"], h["/home/u/.npm/bin/agent"] = "exec", "-> ../lib/node_modules/pkg/cli.js"
			h["/state/homes/p"] = "dir"
			r := ask(t, func(r *Request) {
				r.Profile, r.Home = p, "/state/homes/p"
				r.Command = []string{"agent", "-p", "hello there"}
				r.Owner.Path = "/home/u/.npm/bin:" + r.Owner.Path
				if p.Program == profile.Refuse {
					r.Command[0] = "tool"
				}
			})
			got := mustBuild(t, r, h)
			text, err := json.MarshalIndent(struct {
				Plan    Plan
				Notices []string
				Watch   []string
				Lines   []Line
			}{got.Plan, got.Notices, got.Watch, Explain(got.Plan)}, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", p.Name+".json")
			if *update {
				if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(text)+"\n"); d != "" {
				t.Errorf("go test ./internal/execution/sandbox -run Golden -update, if this is meant:\n%s", d)
			}
		})
	}
}

// secrets are what no plan may show unless a flag names it.
var secrets = []string{
	"/etc/shadow", "/etc/passwd", "/etc/npmrc", "/etc/profile.d/proxy.sh", "/etc/ssl/private/a.key", "/etc/ld.so.preload", "/opt/secret/db", "/var/lib/db",
	"/run/docker.sock", "/boot/x", "/srv/data/x", "/home/u/.ssh/id", "/home/u/.bashrc", "/home/other/x", "/home/u/.config/x/y", "/state/agentos/audit.db", "/proc/1/environ", "/sys/x",
}

// Spec: INV-02, C-10. What nothing names is absent.
func TestNothingElseAppears(t *testing.T) {
	t.Parallel()
	got := mustBuild(t, ask(t), debian())
	for _, p := range secrets {
		if how := sees(got.Plan, p); how != "" {
			t.Errorf("%s is visible (%s)", p, how)
		}
	}
	for p, want := range map[string]string{"/home/u/w/a.txt": "r", "/usr/bin/git": "r", "/etc/ssl/certs/a.pem": "r", "/etc/java-17-openjdk/x": "r"} {
		if how := sees(got.Plan, p); how != want {
			t.Errorf("%s: %q, want %q", p, how, want)
		}
	}
	for _, f := range got.Plan.Files {
		if strings.Contains(f.Data, "token") {
			t.Errorf("%s holds the host's data", f.Path)
		}
	}
	for _, e := range got.Plan.Env {
		if strings.Contains(e, "sk-1") || strings.HasPrefix(e, "FOO=") {
			t.Errorf("environment has %s", e)
		}
	}
	if !slices.Contains(got.Plan.Env, "TERM=xterm") {
		t.Error("TERM, which the profile lists, is not passed")
	}
	if !slices.Contains(got.Plan.Env, "PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/home/agent/.local/bin") {
		t.Errorf("PATH: %v", got.Plan.Env)
	}
}

// Spec: C-10. For every list of a request and of a profile, nil and empty give
// the same plan as a profile with nothing in it, and no variable is passed.
func TestEmptyListsAllowNothing(t *testing.T) {
	t.Parallel()
	bare := profile.Profile{Name: "bare", Workspace: profile.Read, Git: profile.Read, Program: profile.Refuse, Home: profile.Private}
	want := mustBuild(t, ask(t, func(r *Request) { r.Profile = bare }), debian())
	empty := bare
	empty.Read, empty.Exec, empty.Write, empty.Pass, empty.Network, empty.Commands = []string{}, []string{}, []string{}, []string{}, []string{}, []string{}
	empty.Set = map[string]string{}
	got := mustBuild(t, ask(t, func(r *Request) {
		r.Profile, r.RW, r.RO, r.Deny, r.Sockets, r.Limits = empty, []string{}, []string{}, []string{}, []string{}, map[string]string{}
	}), debian())
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, m := range got.Plan.Mounts {
		if m.Write && m.Kind == Bind {
			t.Errorf("%s is writable", m.Target)
		}
	}
	for _, e := range got.Plan.Env {
		if strings.HasPrefix(e, "TERM=") {
			t.Errorf("an empty list passes %s", e)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Request)
		see    map[string]string
		notice string
	}{
		"rw writes through":     {func(r *Request) { r.RW = []string{"/home/u/w"} }, map[string]string{"/home/u/w/a.txt": "w"}, "written through (--rw)"},
		"rw below":              {func(r *Request) { r.RW = []string{"/home/u/w/sub"} }, map[string]string{"/home/u/w/a.txt": "r", "/home/u/w/sub/b.txt": "w"}, "written through"},
		"ro elsewhere":          {func(r *Request) { r.RO = []string{"/srv/data"} }, map[string]string{"/srv/data/x": "r", "/var/lib/db": ""}, ""},
		"a file":                {func(r *Request) { r.RO = []string{"/home/u/.bashrc"} }, map[string]string{"/home/u/.bashrc": "r", "/home/u/.ssh/id": ""}, ""},
		"ro what is there":      {func(r *Request) { r.RO = []string{"/usr"} }, map[string]string{"/usr/bin/git": "r"}, ""},
		"a link is followed":    {func(r *Request) { r.RO, r.Dir = []string{"/home/u/link"}, "/srv/data" }, map[string]string{"/home/u/w/a.txt": "r"}, "/home/u/link is /home/u/w"},
		"deny in a read-only":   {func(r *Request) { r.Deny = []string{"/home/u/w/sub/b.txt"} }, map[string]string{"/home/u/w/a.txt": "r", "/home/u/w/sub/b.txt": "", "/home/u/w/sub/c.txt": "r"}, "is absent"},
		"deny a folder":         {func(r *Request) { r.Deny = []string{"/home/u/w/sub"} }, map[string]string{"/home/u/w/a.txt": "r", "/home/u/w/sub/b.txt": ""}, "is absent"},
		"deny what may come":    {func(r *Request) { r.Deny = []string{"/home/u/w/sub/later.txt"} }, map[string]string{"/home/u/w/sub/later.txt": "", "/home/u/w/sub/c.txt": "r"}, "is absent"},
		"deny by a link":        {func(r *Request) { r.Deny = []string{"/home/u/link/sub"} }, map[string]string{"/home/u/w/sub/b.txt": "", "/home/u/w/a.txt": "r"}, "is absent"},
		"deny two":              {func(r *Request) { r.Deny = []string{"/home/u/w/sub/b.txt", "/home/u/w/sub/c.txt"} }, map[string]string{"/home/u/w/a.txt": "r", "/home/u/w/sub/b.txt": "", "/home/u/w/sub/c.txt": ""}, "is absent"},
		"deny of the system":    {func(r *Request) { r.Deny = []string{"/usr/local"} }, map[string]string{"/usr/local/bin/tool": "", "/usr/bin/git": "r"}, "is absent"},
		"deny what is not seen": {func(r *Request) { r.Deny = []string{"/home/u/.ssh"} }, map[string]string{"/home/u/.ssh/id": ""}, "doesn't show it anyway"},
		"deny in etc":           {func(r *Request) { r.Deny = []string{"/etc/ssl"} }, map[string]string{"/etc/ssl/certs/a.pem": "", "/etc/ld.so.cache": "r"}, "takes 1 places away"},
		"deny with rw beside":   {func(r *Request) { r.RW, r.Deny = []string{"/home/u/w/sub"}, []string{"/home/u/w/a.txt"} }, map[string]string{"/home/u/w/a.txt": "", "/home/u/w/sub/b.txt": "w"}, "is absent"},
		"ro inside rw": {func(r *Request) { r.RW, r.RO = []string{"/home/u/w"}, []string{"/home/u/w/sub"} },
			map[string]string{"/home/u/w/a.txt": "w", "/home/u/w/sub/b.txt": "r"}, "read only inside the writable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mustBuild(t, ask(t, tc.change), debian())
			for p, want := range tc.see {
				if how := sees(got.Plan, p); how != want {
					t.Errorf("%s: %q, want %q", p, how, want)
				}
			}
			if tc.notice != "" && !noticed(got, tc.notice) {
				t.Errorf("no notice with %q: %q", tc.notice, got.Notices)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Request)
		want   string
		next   string
	}{
		// Spec: C-01.
		"deny in a writable tree": {func(r *Request) { r.RW, r.Deny = []string{"/home/u/w"}, []string{"/home/u/w/a.txt"} }, "a rename would bring it back", "--ro /home/u/w"},
		"deny in a writable by ro": {func(r *Request) {
			r.RW, r.RO, r.Deny = []string{"/home/u/w"}, []string{"/home/u/w/sub"}, []string{"/home/u/w/sub/b.txt"}
		}, "a rename would", "move it out"},
		"ro file in a writable":     {func(r *Request) { r.RW, r.RO = []string{"/home/u/w"}, []string{"/home/u/w/a.txt"} }, "can't be kept read only", "--ro /home/u/w"},
		"deny the workspace":        {func(r *Request) { r.Deny = []string{"/home/u/w"} }, "takes away", "give one"},
		"deny above the workspace":  {func(r *Request) { r.Deny = []string{"/home/u"} }, "takes away", "give one"},
		"deny and ro":               {func(r *Request) { r.RO, r.Deny = []string{"/srv/data"}, []string{"/srv"} }, "takes away", "give one"},
		"rw and ro":                 {func(r *Request) { r.RW, r.RO = []string{"/srv/data"}, []string{"/srv/data"} }, "with --rw and with --ro", "give one"},
		"deny in the agent's home":  {func(r *Request) { r.Home, r.Deny = "/state/homes/p", []string{"/state/homes/p/x"} }, "a rename would", ""},
		"workspace is the root":     {func(r *Request) { r.Dir = "/" }, "other people's", "go to"},
		"workspace is the home":     {func(r *Request) { r.Dir = "/home/u" }, "whole home", "go to"},
		"workspace holds the home":  {func(r *Request) { r.Dir = "/home" }, "other people's", "go to"},
		"workspace holds the state": {func(r *Request) { r.Dir = "/state" }, "AgentOS's state", "go to"},
		"workspace in the state":    {func(r *Request) { r.Dir = "/state/agentos" }, "AgentOS's state", "go to"},
		"workspace is a file":       {func(r *Request) { r.Dir = "/home/u/.bashrc" }, "is no folder", ""},
		"workspace is not there":    {func(r *Request) { r.Dir = "/home/u/no" }, "does not exist", ""},
		"home by ro":                {func(r *Request) { r.RO = []string{"/home/u"} }, "whole home", ""},
		"state by ro":               {func(r *Request) { r.RO = []string{"/state/agentos"} }, "AgentOS's state", ""},
		"rw in the system":          {func(r *Request) { r.RW = []string{"/usr/local"} }, "belongs to the system", ""},
		"rw by a link out":          {func(r *Request) { r.RW = []string{"/home/u/out"} }, "an /etc of its own", ""},
		"etc by ro":                 {func(r *Request) { r.RO = []string{"/etc"} }, "an /etc of its own", "--ro /etc/"},
		"passwd by ro":              {func(r *Request) { r.RO = []string{"/etc/passwd"} }, "there twice", ""},
		"a socket":                  {func(r *Request) { r.RO = []string{"/run/docker.sock"} }, "neither folder nor file", ""},
		"services' folder":          {func(r *Request) { r.RO = []string{"/run"} }, "can't be shown", ""},
		"relative":                  {func(r *Request) { r.RO = []string{"x"} }, "not absolute", ""},
		"dotdot":                    {func(r *Request) { r.RO = []string{"/srv/../etc"} }, "not clean", ""},
		"not there":                 {func(r *Request) { r.RW = []string{"/srv/no"} }, "does not exist", ""},
		"profile leads out":         {func(r *Request) { r.Profile.Write = []string{"~/out"} }, "leads out of", "name /etc"},
		"program outside":           {func(r *Request) { r.Command = []string{"mine"} }, "is not in the sandbox", "--ro /home/u/bin/mine"},
		"program absent":            {func(r *Request) { r.Command = []string{"nothing"} }, "find program", ""},
		"no command":                {func(r *Request) { r.Command = nil }, "no command", ""},
		"limit":                     {func(r *Request) { r.Limits = map[string]string{"pids": "lots"} }, "set limit pids", ""},
		"unknown limit":             {func(r *Request) { r.Limits = map[string]string{"disk": "1G"} }, "no such limit", "pids"},
		"UID 0":                     {func(r *Request) { r.Identity.UID = 0 }, "UID 0", ""},
		"persistent without home":   {func(r *Request) { r.Profile.Home = profile.Persistent }, "there is none", ""},
		"landlock without folders":  {func(r *Request) { r.Strength = LandlockOnly }, "no folder for the home", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Build(ask(t, tc.change), debian())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if next := fault.NextOf(err); next == "" || !strings.Contains(next, tc.next) {
				t.Errorf("next step %q, want %q", next, tc.next)
			}
		})
	}
}

// TestRandomRequests: whatever is asked on whatever host, Build either refuses
// or makes a plan that passes Check, shows no denied path, and shows a secret
// only if a flag named it.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	places := []string{
		"/home/u/w", "/home/u/w/sub", "/home/u/w/a.txt", "/home/u/w/sub/b.txt", "/srv/data", "/srv/data/x", "/srv", "/home/u/link", "/home/u/link/sub", "/home/u/.config",
		"/home/u/.config/x", "/usr/local", "/usr/local/bin/tool", "/opt", "/etc/ssl", "/home/u/w/.git", "/home/u/w/.git/hooks", "/home/u/w/new", "/state/homes/p", "/var/lib", "/home/u/bin", "/tmp",
	}
	pick := func() []string {
		var out []string
		for range rnd.IntN(3) {
			out = append(out, places[rnd.IntN(len(places))])
		}
		return out
	}
	built := 0
	for range 1500 {
		h := debian()
		if rnd.IntN(2) == 0 {
			h = debian(repo("/home/u/w")...)
		}
		r := ask(t, func(r *Request) {
			r.RW, r.RO, r.Deny = pick(), pick(), pick()
			r.Dir = []string{"/home/u/w", "/home/u/w/sub", "/srv/data"}[rnd.IntN(3)]
			r.Profile.Workspace = []profile.Access{profile.Read, profile.Write}[rnd.IntN(2)]
			r.Profile.Read, r.Profile.Write = []string{"~/.config"}, pick()
			r.Home = []string{"", "/state/homes/p"}[rnd.IntN(2)]
			if rnd.IntN(4) == 0 {
				r.Strength, r.Home, r.Tmp = LandlockOnly, "/state/homes/p", "/state/tmp"
				r.Identity.UID, r.Identity.GID = 1000, 1000
			}
		})
		got, err := Build(r, h)
		if err != nil {
			if fault.NextOf(err) == "" {
				t.Fatalf("%v has no next step: %+v", err, r)
			}
			continue
		}
		built++
		if err := got.Plan.Check(); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, d := range r.Deny {
			real, _ := resolveMissing(h, d)
			if how := sees(got.Plan, real); how != "" {
				t.Fatalf("denied %s is visible (%s): %+v\n%+v", d, how, r, got.Plan.Mounts)
			}
		}
		for _, s := range secrets {
			asked := slices.ContainsFunc(slices.Concat(r.RW, r.RO, r.Profile.Write, []string{r.Dir, "/home/u/.config"}), func(p string) bool {
				real, _ := resolveMissing(h, p)
				return sandboxplan.Below(s, real)
			})
			if how := sees(got.Plan, s); how != "" && !asked {
				t.Fatalf("%s is visible (%s): %+v", s, how, r)
			}
		}
	}
	if built < 200 {
		t.Errorf("only %d of 1500 requests made a plan: the test sees too little", built)
	}
}
