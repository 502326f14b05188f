package sandbox

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentos/internal/execution/profile"
	"agentos/internal/lib/sandboxplan"
)

// fake is a host: path to what is there. "dir", "exec", "fifo", "socket",
// "device", "-> target", or the text of a file. Parents are folders.
type fake map[string]string

func (f fake) entry(p string) (Entry, bool) {
	e := Entry{Name: path.Base(p)}
	what, ok := f[p]
	if !ok {
		for other := range f {
			if sandboxplan.Below(other, p) {
				e.Type = fs.ModeDir
				return e, true
			}
		}
		return e, p == "/"
	}
	switch {
	case what == "dir":
		e.Type = fs.ModeDir
	case what == "exec":
		e.Exec = true
	case what == "fifo":
		e.Type = fs.ModeNamedPipe
	case what == "socket":
		e.Type = fs.ModeSocket
	case what == "device":
		e.Type = fs.ModeDevice
	case strings.HasPrefix(what, "-> "):
		e.Type = fs.ModeSymlink
	}
	return e, true
}

func (f fake) Lstat(p string) (Entry, error) {
	if e, ok := f.entry(p); ok {
		return e, nil
	}
	return Entry{}, &fs.PathError{Op: "lstat", Path: p, Err: fs.ErrNotExist}
}

func (f fake) Readlink(p string) (string, error) {
	if to, ok := strings.CutPrefix(f[p], "-> "); ok {
		return to, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: p, Err: fs.ErrInvalid}
}

func (f fake) ReadDir(dir string, limit int) ([]Entry, error) {
	seen := map[string]bool{}
	for p := range f {
		if p != dir && sandboxplan.Below(p, dir) {
			rest := strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
			first, _, _ := strings.Cut(rest, "/")
			seen[first] = true
		}
	}
	if len(seen) > limit {
		return nil, ErrMany
	}
	var out []Entry
	for name := range seen {
		e, _ := f.entry(path.Join(dir, name))
		out = append(out, e)
	}
	sortEntries(out)
	return out, nil
}

func (f fake) ReadFile(p string, limit int) ([]byte, error) {
	text, ok := f[p]
	if e, _ := f.entry(p); !ok || !e.isRegular() {
		return nil, fs.ErrNotExist
	}
	if len(text) > limit {
		return nil, ErrMany
	}
	return []byte(text), nil
}

// debian is a small Debian with a few things that must never be seen.
func debian(more ...string) fake {
	f := fake{
		"/usr/bin/bash": "exec", "/usr/bin/sh": "-> bash", "/usr/bin/git": "exec", "/usr/bin/node": "exec", "/usr/bin/python3": "exec",
		"/usr/local/bin/tool": "exec", "/usr/local/go/bin/go": "exec", "/usr/lib/x.so": "f",
		"/bin": "-> usr/bin", "/sbin": "-> usr/sbin", "/usr/sbin": "dir", "/lib": "-> usr/lib", "/lib64": "-> usr/lib64", "/usr/lib64": "dir",
		"/etc/ld.so.cache": "f", "/etc/alternatives": "dir", "/etc/ssl/certs/a.pem": "f", "/etc/ssl/private/a.key": "f", "/etc/localtime": "-> /usr/share/zoneinfo/UTC",
		"/etc/shadow": "f", "/etc/passwd": "f", "/etc/npmrc": "token", "/etc/profile.d/proxy.sh": "f", "/etc/python3.11/sitecustomize.py": "f", "/etc/java-17-openjdk/x": "f",
		"/etc/ld.so.preload": "f", "/opt/secret/db": "f", "/var/lib/db": "f", "/run/docker.sock": "socket", "/boot/x": "f", "/srv/data/x": "f", "/srv/data/y": "f",
		"/home/u/.ssh/id": "f", "/home/u/.bashrc": "f", "/home/other/x": "f",
		"/home/u/w/a.txt": "f", "/home/u/w/sub/b.txt": "f", "/home/u/w/sub/c.txt": "f",
		"/home/u/bin/mine": "exec", "/home/u/link": "-> w", "/home/u/out": "-> /etc", "/home/u/.config/x/y": "f",
		"/state/agentos/audit.db": "f", "/state/homes/p": "dir", "/state/tmp": "dir",
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] == "" {
			delete(f, more[i])
		} else {
			f[more[i]] = more[i+1]
		}
	}
	return f
}

// repo adds a plain repository at root.
func repo(root string) []string {
	g := root + "/.git/"
	return []string{g + "HEAD", "ref: x", g + "config", "[core]\n\tbare = false\n", g + "hooks", "dir", g + "objects/aa/b", "f", g + "refs/heads/main", "f", g + "logs/HEAD", "f", g + "index", "f"}
}

var loaded = sync.OnceValues(func() (*profile.Set, error) { return profile.Load("") })

func builtin(t *testing.T, name string) profile.Profile {
	t.Helper()
	s, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask is a request on debian: the generic profile in /home/u/w.
func ask(t *testing.T, change ...func(*Request)) Request {
	t.Helper()
	r := Request{
		Run: "run-1", Profile: builtin(t, "generic"), Command: []string{"git", "status"}, Dir: "/home/u/w",
		Identity: Identity{UID: 900, GID: 900, OwnerUID: 1000, OwnerGID: 1000, User: "agent"},
		Owner:    Owner{Home: "/home/u", Path: "/home/u/bin:/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin", Env: map[string]string{"TERM": "xterm", "OPENAI_API_KEY": "sk-1", "FOO": "bar"}},
		StateDir: "/state/agentos",
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func mustBuild(t *testing.T, r Request, h Host) Result {
	t.Helper()
	got, err := Build(r, h)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// at returns a mount by target; a zero one if the plan has none.
func at(p Plan, target string) Mount {
	i := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Target == target })
	if i < 0 {
		return Mount{}
	}
	return p.Mounts[i]
}

// sees reports how the sandbox shows a path of the host at its own place: "",
// "r" or "w". It reads the plan like the launcher: the last mount above counts.
func sees(p Plan, host string) string {
	got := ""
	for _, m := range p.Mounts {
		if !sandboxplan.Below(host, m.Target) {
			continue
		}
		switch {
		case m.Kind == Bind && m.Source == m.Target && m.Write:
			got = "w"
		case m.Kind == Bind && m.Source == m.Target:
			got = "r"
		default:
			got = ""
		}
	}
	return got
}

func noticed(r Result, text string) bool {
	return slices.ContainsFunc(r.Notices, func(n string) bool { return strings.Contains(n, text) })
}
