package sandbox

import (
	"path"
	"strings"

	"agentos/internal/execution/profile"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// program finds the command on the host and sees to it that the sandbox shows
// it, or says how to.
func (b *builder) program() error {
	if len(b.req.Command) == 0 || b.req.Command[0] == "" {
		return fault.New(fault.Usage, "name a program after --", "plan sandbox: no command")
	}
	name := b.req.Command[0]
	found, real, ok := b.find(name)
	if !ok {
		if _, mine := b.inHome(name); mine {
			return nil
		}
		return fault.New(fault.NotFound, "check the spelling and your PATH", "find program %q", name)
	}
	if b.runs(real) {
		if strings.Contains(name, "/") || !b.onPath(path.Dir(found)) {
			b.plan.Command[0] = b.insidePath(found, real)
		}
		return nil
	}
	if b.prof.Program != profile.Package {
		return fault.New(fault.Denied, "show it: --ro "+b.packageDir(real), "plan sandbox: program %q is %q, which is not in the sandbox", name, real)
	}
	b.plan.Command[0] = real
	return b.showPackage(real)
}

// insidePath is the path by which a program inside is started: as it was named
// if that name is there too (some programs look at their own name).
func (b *builder) insidePath(found, real string) string {
	if m := b.covering(found); m != nil && m.Kind == Bind && m.Exec {
		return found
	}
	return real
}

// find looks a command up as execvp(3) would on the host.
func (b *builder) find(name string) (found, real string, ok bool) {
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join(b.dir, name)
		}
		name = path.Clean(name)
		real, ok = b.executable(name)
		return name, real, ok
	}
	for _, dir := range strings.Split(b.req.Owner.Path+":"+defaultPath, ":") {
		if !path.IsAbs(dir) {
			continue // an empty entry or . would run what lies in the workspace
		}
		found = path.Join(dir, name)
		if real, ok = b.executable(found); ok {
			return found, real, true
		}
	}
	return "", "", false
}

func (b *builder) executable(p string) (real string, ok bool) {
	real, e, err := resolve(b.host, p)
	return real, err == nil && e.isRegular() && e.Exec
}

// inHome: programs that an agent installed in its own home.
func (b *builder) inHome(name string) (string, bool) {
	if b.req.Home == "" || strings.Contains(name, "/") {
		return "", false
	}
	return b.executable(path.Join(b.req.Home, ".local/bin", name))
}

// runs reports whether the sandbox shows a real path with leave to start it.
func (b *builder) runs(real string) bool {
	m := b.covering(real)
	return m != nil && m.Kind == Bind && m.Exec && m.Source == m.Target
}

// onPath reports whether a folder is on the PATH inside.
func (b *builder) onPath(dir string) bool {
	for _, d := range strings.Split(b.insideDirs(), ":") {
		if d == dir {
			return true
		}
	}
	return false
}

// packageDir is the smallest folder that a program needs to run: the npm modules
// or the Python environment around it, else the file alone.
func (b *builder) packageDir(real string) string {
	if i := strings.Index(real, "/node_modules/"); i >= 0 {
		return real[:i+len("/node_modules")]
	}
	for dir, n := path.Dir(real), 0; dir != "/" && n < 8; dir, n = path.Dir(dir), n+1 {
		if e, ok := there(b.host, dir+"/pyvenv.cfg"); ok && e.isRegular() {
			return dir
		}
	}
	return real
}

// showPackage shows a program's package, and the interpreter that belongs to it
// if that is outside the system too.
func (b *builder) showPackage(real string) error {
	dir := b.packageDir(real)
	why := "program " + path.Base(b.req.Command[0])
	if err := b.grant(grant{dir, false, true, why, false}); err != nil {
		return err
	}
	candidates := []string{path.Join(dir, "bin/python3")} // a Python environment
	if strings.HasSuffix(dir, "/lib/node_modules") {
		candidates = append(candidates, path.Join(dir, "../../bin/node"))
	}
	for _, c := range candidates {
		at, ok := b.executable(c)
		if !ok || b.runs(at) {
			continue
		}
		if strings.HasSuffix(c, "/python3") {
			at = path.Dir(path.Dir(at)) // its library is beside it
		}
		if err := b.grant(grant{at, false, true, why + ", its interpreter", false}); err != nil {
			return err
		}
	}
	return b.nest()
}

// insideDirs is the PATH inside: the owner's folders that the sandbox shows, the
// usual ones, and the agent's own.
func (b *builder) insideDirs() string {
	var out []string
	seen := map[string]bool{}
	for _, d := range strings.Split(b.req.Owner.Path+":"+defaultPath, ":") {
		if seen[d] || sandboxplan.CheckPath(d) != nil || len(out) > 64 {
			continue
		}
		seen[d] = true
		if b.shownDir(d) {
			out = append(out, d)
		}
	}
	return strings.Join(append(out, b.plan.Identity.Home+"/.local/bin"), ":")
}

// shownDir: a folder that exists and that programs can be started from, not one
// that the agent can write (what it puts there would be found before the system's).
func (b *builder) shownDir(d string) bool {
	real, e, err := resolve(b.host, d)
	if err != nil || !e.isDir() || !b.runs(real) {
		return false
	}
	m := b.covering(d)
	return m != nil && (m.Kind == Link || m.Kind == Bind && !m.Write)
}
