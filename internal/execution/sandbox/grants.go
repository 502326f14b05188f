package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"agentos/internal/execution/profile"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

const homeInside = "/home/agent"

// home gives the agent a home that is not the owner's.
func (b *builder) home() error {
	b.plan.Identity.Home = homeInside
	if b.req.Home == "" {
		if b.prof.Home == profile.Persistent {
			return fault.New(fault.Usage, "give the run a home folder", "plan sandbox: profile %q has a persistent home and there is none", b.prof.Name)
		}
		b.at[homeInside] = &Mount{Kind: Tmpfs, Target: homeInside, Write: true, Exec: true, SizeBytes: b.tmpBytes(), Why: "private home"}
		return nil
	}
	src, e, err := resolve(b.host, b.req.Home)
	if err != nil || !e.isDir() {
		return fault.Wrap(err, fault.NotFound, "run agentos doctor", "plan sandbox: home folder %q is not there", b.req.Home)
	}
	m := &Mount{Kind: Bind, Source: src, Target: homeInside, Write: true, Exec: true, Owned: true, Why: string(b.prof.Home) + " home of profile " + b.prof.Name}
	if b.landlock() {
		m.Target = src
		b.plan.Identity.Home = src
	}
	if sandboxplan.Below(src, b.dir) || sandboxplan.Below(b.dir, src) || sandboxplan.Below(b.dir, homeInside) {
		return fault.New(fault.Denied, "go to another folder", "plan sandbox: the workspace %q overlaps the agent's home", b.dir)
	}
	b.at[m.Target] = m
	return nil
}

func (b *builder) tmpBytes() int64 {
	if n := b.plan.Limits.TmpBytes; n > 0 {
		return n
	}
	return defaultTmp
}

// grant is one place that somebody asked for.
type grant struct {
	path        string
	write, exec bool
	why         string
	flag        bool
}

// grants gives the workspace, then what the profile lists, then the flags. For
// one path the later word counts.
func (b *builder) grants() error {
	list := []grant{{b.dir, b.prof.Workspace == profile.Write, true, "workspace, profile " + b.prof.Name, false}}
	more, err := b.profileGrants()
	if err != nil {
		return err
	}
	list = append(list, more...)
	rw := map[string]bool{}
	for _, f := range []struct {
		name  string
		paths []string
		write bool
	}{{"--rw", b.req.RW, true}, {"--ro", b.req.RO, false}} {
		for _, p := range f.paths {
			real, err := b.place(f.name, p)
			if err != nil {
				return err
			}
			if rw[real] && !f.write {
				return fault.New(fault.Usage, "give one of them", "plan sandbox: %q is given with --rw and with --ro", real)
			}
			rw[real] = f.write
			list = append(list, grant{real, f.write, true, f.name, true})
		}
	}
	for _, g := range list {
		if err := b.grant(g); err != nil {
			return err
		}
	}
	for _, p := range b.req.Sockets {
		real, err := b.place("--allow-sockets", p)
		if err != nil {
			return err
		}
		b.allowed[real] = true
		b.note("sockets and FIFOs in %s can be reached: whoever serves them answers the agent", real)
	}
	return b.nest()
}

// profileGrants resolves a profile's places. Those that don't exist are left
// out; one that a link leads out of where it is named is refused.
func (b *builder) profileGrants() ([]grant, error) {
	var out []grant
	for _, l := range []struct {
		paths       []string
		write, exec bool
	}{{b.prof.Read, false, false}, {b.prof.Exec, false, true}, {b.prof.Write, true, false}} {
		for _, p := range l.paths {
			root, full := "", p
			if rest, ok := cutVar(p, "~"); ok {
				root = b.real(b.req.Owner.Home)
				full = path.Join(root, rest)
			} else if rest, ok := cutVar(p, "$WORKSPACE"); ok {
				root = b.dir
				full = path.Join(root, rest)
			}
			if full != p && root == "" {
				continue // an owner without a home has nothing there
			}
			real, _, err := resolve(b.host, full)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fault.Wrap(err, fault.Usage, "check the path", "plan sandbox: look at %q of profile %q", p, b.prof.Name)
			}
			if root != "" && !sandboxplan.Below(real, root) {
				return nil, fault.New(fault.Denied, "name "+real+" in the profile, or give it with a flag, if that is what you mean",
					"plan sandbox: %q of profile %q leads out of %q to %q", p, b.prof.Name, root, real)
			}
			out = append(out, merge(grant{real, l.write, l.exec, "profile " + b.prof.Name, false}, out))
		}
	}
	return out, nil
}

// merge adds the rights that an earlier list of the same profile gave: a path in
// write and in exec has both.
func merge(g grant, before []grant) grant {
	for _, o := range before {
		if o.path == g.path {
			g.write, g.exec = g.write || o.write, g.exec || o.exec
		}
	}
	return g
}

func cutVar(p, name string) (string, bool) {
	if p == name {
		return "", true
	}
	return strings.CutPrefix(p, name+"/")
}

// grant puts one bind into the plan.
func (b *builder) grant(g grant) error {
	if err := sandboxplan.CheckPath(g.path); err != nil {
		return err
	}
	what := g.why
	if g.path == b.dir {
		what = "the workspace"
	}
	if err := b.tooWide(what, g.path); err != nil {
		return err
	}
	if e, ok := there(b.host, g.path); !ok || !e.isDir() && !e.isRegular() {
		return fault.New(fault.Denied, "name a folder or a plain file", "plan sandbox: %s %q is neither folder nor file", what, g.path)
	}
	if sandboxplan.Closed(g.path) {
		return fault.New(fault.Denied, "the sandbox has its own /proc, /dev and /run; sockets of services are not shown", "plan sandbox: %s %q can't be shown", what, g.path)
	}
	if g.path == "/etc" {
		return fault.New(fault.Usage, "name the files in it, for example --ro /etc/hosts.allow", "plan sandbox: the sandbox has an /etc of its own")
	}
	if m := b.at[g.path]; m != nil && !g.write && m.Why == "system" {
		return nil // it is there
	}
	b.at[g.path] = &Mount{Kind: Bind, Source: g.path, Target: g.path, Write: g.write, Exec: g.exec, Owned: true, Why: g.why}
	b.roots = append(b.roots, g.path)
	return nil
}

// nest settles places inside others: what adds nothing goes, and what is
// narrower is pinned, so that nobody inside can move it away and take its name.
func (b *builder) nest() error {
	for _, p := range b.targets() {
		m := b.at[p]
		if m.Kind == Bind && m.Write && slices.Contains(b.roots, p) {
			b.note("%s is written through (%s): changes are made at once and are not undone", p, m.Why)
		}
		up := b.enclosing(p)
		if m.Kind != Bind || up == nil || up.Kind != Bind || m.Source != up.Source+p[len(up.Target):] {
			continue
		}
		switch {
		case m.Write == up.Write && m.Exec == up.Exec:
			if m.Owned && !up.Owned {
				continue
			}
			delete(b.at, p)
		case up.Write && !m.Write:
			e, ok := there(b.host, p)
			if !ok || !e.isDir() {
				return fault.New(fault.Denied, "make its folder read only instead: --ro "+path.Dir(p),
					"plan sandbox: %q can't be kept read only inside the writable %q: saving it by rename, as editors do, would undo that", p, up.Target)
			}
			b.pin(p, up)
			b.note("%s is read only inside the writable %s; renaming it from outside while the run goes on would undo that", p, up.Target)
		}
	}
	return nil
}

// pin makes every folder between a writable tree and p a mount point: the kernel
// refuses to rename one.
func (b *builder) pin(p string, up *Mount) {
	for dir := path.Dir(p); dir != up.Target; dir = path.Dir(dir) {
		if b.at[dir] == nil {
			b.at[dir] = &Mount{Kind: Bind, Source: dir, Target: dir, Write: up.Write, Exec: up.Exec, Owned: up.Owned, Why: "keeps its place: " + up.Why}
		}
	}
}

// enclosing is the nearest mount above a path, or nil.
func (b *builder) enclosing(p string) *Mount {
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if m := b.at[dir]; m != nil {
			return m
		}
	}
	return nil
}

// covering is the nearest mount at or above a path, or nil.
func (b *builder) covering(p string) *Mount {
	if m := b.at[p]; m != nil {
		return m
	}
	return b.enclosing(p)
}
