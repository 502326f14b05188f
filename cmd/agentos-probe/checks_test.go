//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentos/internal/lib/sandboxplan"
)

func plan() sandboxplan.Plan {
	return sandboxplan.Plan{
		Version: sandboxplan.Version, Run: "r", Strength: sandboxplan.Full, Hostname: "agentos",
		Command: []string{"x"}, Env: []string{"HOME=/home/agent"}, Dir: "/srv",
		Identity: sandboxplan.Identity{UID: 900, GID: 901, OwnerUID: 1000, OwnerGID: 1000, User: "agent", Home: "/home/agent"},
		Mounts: []sandboxplan.Mount{
			{Kind: sandboxplan.Link, Source: "usr/bin", Target: "/bin"},
			{Kind: sandboxplan.Dev, Target: "/dev", Write: true},
			{Kind: sandboxplan.Folder, Target: "/etc"},
			{Kind: sandboxplan.Bind, Source: "/etc/ssl", Target: "/etc/ssl"},
			{Kind: sandboxplan.Bind, Source: "/etc/maybe", Target: "/etc/maybe", Optional: true},
			{Kind: sandboxplan.Folder, Target: "/home"},
			{Kind: sandboxplan.Tmpfs, Target: "/home/agent", Write: true, Exec: true, SizeBytes: 4096},
			{Kind: sandboxplan.Proc, Target: "/proc"},
			{Kind: sandboxplan.Bind, Source: "/srv", Target: "/srv", Write: true},
			{Kind: sandboxplan.Bind, Source: "/usr", Target: "/usr", Exec: true},
		},
		Files: []sandboxplan.File{{Path: "/etc/passwd", Data: "x"}},
	}
}

// fake is a machine that does what plan says, as far as it isn't told otherwise.
type fake struct {
	p       sandboxplan.Plan
	extra   map[string]string // a name too many, by folder
	there   map[string]bool   // places of the host that are in reach
	writes  map[string]bool   // answers other than the plan's
	exec    map[string]bool
	id      identity
	host    string
	nics    []string
	noLoop  bool
	online  bool
	socks   bool
	others  int
	ppid    int
	allowed string // a call that is let through
}

func obedient() *fake {
	p := plan()
	return &fake{p: p, extra: map[string]string{}, there: map[string]bool{}, writes: map[string]bool{}, exec: map[string]bool{},
		id: identity{uids: [3]int{900, 900, 900}, gids: [3]int{901, 901, 901}, caps: "none", nnp: 1, seccomp: 2}, host: "agentos", nics: []string{"lo"}, ppid: 1}
}

func (f *fake) find(p string) (sandboxplan.Mount, bool) {
	i := slices.IndexFunc(f.p.Mounts, func(m sandboxplan.Mount) bool { return m.Target == p && !m.Optional })
	if i < 0 {
		return sandboxplan.Mount{}, false
	}
	return f.p.Mounts[i], true
}

func (f *fake) look(p string) (bool, error) {
	if _, ok := f.find(p); ok || f.there[p] {
		return true, nil
	}
	return false, syscall.ENOENT
}

func (f *fake) list(p string) ([]string, error) {
	var out []string
	if p == "/dev" {
		out = []string{"null", "zero", "full", "random", "urandom", "tty", "pts", "shm", "fd", "stdin", "stdout", "stderr", "ptmx"}
	}
	for _, m := range f.p.Mounts {
		if path.Dir(m.Target) == p && !m.Optional {
			out = append(out, path.Base(m.Target))
		}
	}
	if p == "/etc" {
		out = append(out, "passwd")
	}
	if x, ok := f.extra[p]; ok {
		out = append(out, x)
	}
	return out, nil
}

func (f *fake) read(p string) error {
	if p == "/etc/passwd" || f.there[p] {
		return nil
	}
	return syscall.ENOENT
}

func (f *fake) create(p string) error {
	m, _ := f.find(p)
	yes := m.Write && m.Kind != sandboxplan.Dev
	if w, told := f.writes[p]; told {
		yes = w
	}
	if !yes {
		return syscall.EROFS
	}
	return nil
}

func (f *fake) write(p string) error {
	if f.writes[p] || p == "/dev/null" {
		return nil
	}
	return syscall.EACCES
}
func (f *fake) mount(p string) (bool, bool, error) {
	return f.create(p) != nil, f.run(p) != syscall.ENOEXEC, nil
}
func (f *fake) mode(string) bool { return true }
func (f *fake) run(p string) error {
	m, _ := f.find(p)
	yes := m.Exec
	if x, told := f.exec[p]; told {
		yes = x
	}
	if yes {
		return syscall.ENOEXEC
	}
	return syscall.EACCES
}
func (f *fake) load(string) error  { return syscall.EPERM }
func (f *fake) identity() identity { return f.id }
func (f *fake) names() (string, string, []string) {
	return f.host, "/srv", []string{"HOME=/elsewhere"}
}
func (f *fake) interfaces() ([]string, error) { return f.nics, nil }
func (f *fake) loopback() error {
	if f.noLoop {
		return syscall.ENETUNREACH
	}
	return nil
}
func (f *fake) connect(bool) error {
	if f.online {
		return nil
	}
	return syscall.ENETUNREACH
}
func (f *fake) socket(int, int, int) error {
	if f.socks {
		return nil
	}
	return syscall.EPERM
}
func (f *fake) processes() (int, int, error) { return f.others, f.ppid, nil }
func (f *fake) call(name, _ string) error {
	if f.allowed == name {
		return syscall.EINVAL // the kernel agreed and then found the arguments wanting
	}
	return syscall.EPERM
}

func differences(t *testing.T, doc sandboxplan.Probe, m machine) []string {
	t.Helper()
	list := probe(doc, m)
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sandboxplan.ReadFindings(b); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, f := range list {
		if !f.Agree {
			out = append(out, f.Check)
		}
	}
	return out
}

// TestCompare: a kernel that does what the plan says agrees in everything, and
// each way to do otherwise is seen, by the check that is about it.
func TestCompare(t *testing.T) {
	t.Parallel()
	for want, lie := range map[string]func(f *fake){
		"":                        func(*fake) {},
		"uid":                     func(f *fake) { f.id.uids[0] = 0 },
		"uid ":                    func(f *fake) { f.id.uids[2] = 0 },
		"gid":                     func(f *fake) { f.id.gids[1] = 0 },
		"further groups":          func(f *fake) { f.id.groups = []int{27} },
		"capabilities":            func(f *fake) { f.id.caps = "ambient" },
		"bounding set":            func(f *fake) { f.id.bounding = 1 },
		"no_new_privs":            func(f *fake) { f.id.nnp = 0 },
		"seccomp mode":            func(f *fake) { f.id.seccomp = 0 },
		"host name":               func(f *fake) { f.host = "laptop" },
		"contents of /":           func(f *fake) { f.extra["/"] = "sys" },
		"contents of /etc":        func(f *fake) { f.extra["/etc"] = "hosts.deny" },
		"contents of /dev":        func(f *fake) { f.extra["/dev"] = "kvm" },
		"new file in /":           func(f *fake) { f.writes["/"] = true },
		"new file in /dev":        func(f *fake) { f.writes["/dev"] = true },
		"write /proc/sys":         func(f *fake) { f.writes["/proc/sys/kernel/hostname"] = true },
		"file /etc/passwd":        func(f *fake) { f.writes["/etc/passwd"] = true },
		"bind /etc/ssl":           func(f *fake) { f.writes["/etc/ssl"] = true },
		"bind /usr":               func(f *fake) { f.writes["/usr"] = true },
		"bind /srv":               func(f *fake) { f.writes["/srv"] = false },
		"bind /srv ":              func(f *fake) { f.exec["/srv"] = true },
		"bind /etc/ssl ":          func(f *fake) { f.exec["/etc/ssl"] = true },
		"tmpfs /home/agent":       func(f *fake) { f.exec["/home/agent"] = false },
		"host's /home/owner":      func(f *fake) { f.there["/home/owner"] = true },
		"host's /sys":             func(f *fake) { f.there["/sys"] = true },
		"network interfaces":      func(f *fake) { f.nics = append(f.nics, "eth0") },
		"loopback":                func(f *fake) { f.noLoop = true },
		"connect to the internet": func(f *fake) { f.online = true },
		"AF_PACKET socket":        func(f *fake) { f.socks = true },
		"other processes":         func(f *fake) { f.others = 80 },
		"first process":           func(f *fake) { f.ppid = 4711 },
		"bpf":                     func(f *fake) { f.allowed = "bpf" },
		"unshare(CLONE_NEWUSER)":  func(f *fake) { f.allowed = "unshare(CLONE_NEWUSER)" },
		"chmod u+s":               func(f *fake) { f.allowed = "chmod u+s" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			f := obedient()
			lie(f)
			got := differences(t, sandboxplan.Probe{Plan: f.p, Absent: []string{"/home/owner"}}, f)
			if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[0] != strings.TrimSpace(want)) {
				t.Errorf("differences %q", got)
			}
		})
	}
}

// TestCompareWithoutNamespaces: names of the host are there; what counts is that
// they can't be opened, and that there is no socket.
func TestCompareWithoutNamespaces(t *testing.T) {
	t.Parallel()
	f := obedient()
	p := &f.p
	p.Strength, p.Files, p.Identity.UID, p.Identity.GID = sandboxplan.LandlockOnly, nil, 1000, 1000
	p.Mounts = []sandboxplan.Mount{
		{Kind: sandboxplan.Dev, Target: "/dev", Write: true},
		{Kind: sandboxplan.Bind, Source: "/srv", Target: "/srv", Write: true, Exec: true},
		{Kind: sandboxplan.Bind, Source: "/usr", Target: "/usr", Exec: true},
	}
	f.id.uids, f.id.gids, f.host, f.nics, f.ppid, f.others = [3]int{1000, 1000, 1000}, [3]int{1000, 1000, 1000}, "laptop", []string{"eth0"}, 77, 99
	doc := sandboxplan.Probe{Plan: *p, Absent: []string{"/home/owner"}}
	if got := differences(t, doc, f); len(got) > 0 {
		t.Errorf("%q", got)
	}
	f.there["/home/owner"], f.socks = true, true
	got := differences(t, doc, f)
	if !slices.Contains(got, "host's /home/owner") || !slices.Contains(got, "AF_UNIX socket") {
		t.Errorf("%q", got)
	}
}

// TestBadInput: no document, no findings.
func TestBadInput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(strings.NewReader(`{"version":1}`), &out); err == nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
