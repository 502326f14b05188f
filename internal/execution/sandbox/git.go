package sandbox

import (
	"path"
	"slices"
	"strings"

	"agentos/internal/execution/profile"
	"agentos/internal/lib/sandboxplan"
)

// git protects what Git runs later with the owner's rights. Spec: C-02.
func (b *builder) git() error {
	for _, root := range slices.Compact(slices.Sorted(slices.Values(b.roots))) {
		m := b.at[root]
		if m == nil {
			m = b.covering(root)
		}
		if m == nil || m.Kind != Bind {
			continue
		}
		e, ok := there(b.host, root+"/.git")
		switch {
		case !ok:
			b.partOf(root)
		case e.isDir():
			b.plain(root, m)
		case e.isRegular():
			if err := b.worktree(root, m); err != nil {
				return err
			}
		case m.Write:
			b.note("%s/.git is a link: what it leads to is not granted, and the agent can replace it; look before you run git there", root)
		}
	}
	return nil
}

// partOf says when the workspace is only a part of a repository.
func (b *builder) partOf(root string) {
	if root != b.dir {
		return
	}
	for dir := path.Dir(root); dir != "/"; dir = path.Dir(dir) {
		if _, ok := there(b.host, dir+"/.git"); ok && b.covering(dir+"/.git") == nil {
			b.note("the repository %s is not in the sandbox: start in its top folder if the agent is to use git", dir)
			return
		}
	}
}

// plain protects a repository with its .git folder. The folder is a mount point
// of its own so that it can't be renamed inside, and so are the protected parts.
func (b *builder) plain(root string, m *Mount) {
	if !m.Write {
		return
	}
	git := root + "/.git"
	if b.landlock() {
		b.note("landlock-only can't keep %s/hooks and config read only: look before you run git there", git)
		return
	}
	why := ""
	for _, need := range []struct {
		name string
		dir  bool
	}{{"hooks", true}, {"config", false}} {
		e, ok := there(b.host, git+"/"+need.name)
		if !ok || e.isDir() != need.dir || !e.isDir() && !e.isRegular() {
			why = need.name
		}
	}
	switch {
	case b.prof.Git != profile.Write:
		b.keep(git, m, "repository, read only by profile "+b.prof.Name)
		return
	case why != "":
		b.keep(git, m, "repository, read only: it has no plain "+why)
		b.note("%s is read only: the agent could make its missing %s; to let it commit: mkdir -p %s/hooks", git, why, git)
		return
	}
	b.give(git, m, "repository")
	for _, n := range []string{"hooks", "config", "config.worktree", "modules", "worktrees"} {
		if e, ok := there(b.host, git+"/"+n); ok && (e.isDir() || e.isRegular()) {
			b.keep(git+"/"+n, m, "Git runs what it says")
		}
	}
	b.watchFor(git+"/commondir", git+"/config.worktree", root+"/HEAD")
	b.config(git+"/config", root, m)
}

func (b *builder) keep(p string, m *Mount, why string) { b.rebind(p, m, false, why) }
func (b *builder) give(p string, m *Mount, why string) { b.rebind(p, m, true, why) }

func (b *builder) rebind(p string, m *Mount, write bool, why string) {
	b.at[p] = &Mount{Kind: Bind, Source: p, Target: p, Write: write, Exec: m.Exec, Owned: m.Owned, Why: why}
}

// watchFor lists what Git would obey if it appeared. A mount needs something to
// stand on, and nothing is made on the host for it (C-03).
func (b *builder) watchFor(paths ...string) {
	for _, p := range paths {
		if _, ok := there(b.host, p); !ok {
			b.watch = append(b.watch, p)
		}
	}
}

const maxGitFile = 64 << 10 // bytes of a configuration that is looked at

// config keeps the places read only that a repository's configuration sends Git
// to: hooks elsewhere (husky), included files.
func (b *builder) config(file, root string, m *Mount) {
	data, err := b.host.ReadFile(file, maxGitFile)
	if err != nil {
		b.note("%s can't be read: hooks that it names elsewhere are not protected", file)
		return
	}
	for _, to := range pointsTo(string(data)) {
		if strings.HasPrefix(to.path, "~") || strings.HasPrefix(to.path, "%(") {
			continue // the owner's home, which is absent
		}
		p := to.path
		if !path.IsAbs(p) {
			base := root // core.hooksPath is relative to where hooks run
			if to.include {
				base = path.Dir(file)
			}
			p = path.Join(base, p)
		}
		p = path.Clean(p)
		up := b.covering(p)
		if sandboxplan.CheckPath(p) != nil || up == nil || !up.Write || p == root {
			continue
		}
		real, e, err := resolve(b.host, p)
		if err != nil || real != p || !e.isDir() && !e.isRegular() {
			b.watchFor(p)
			b.note("%s sends Git to %s, which the agent can make or change: look before you run git there", file, p)
			continue
		}
		b.pin(p, up)
		b.keep(p, up, "named by "+file)
	}
}

type pointer struct {
	path    string
	include bool
}

// pointsTo reads core.hooksPath and include.path of git-config(1), as far as one
// line goes; quoting is undone, a continued line is taken as it stands.
func pointsTo(text string) []pointer {
	var out []pointer
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			head, rest, ok := strings.Cut(line[1:], "]")
			if !ok {
				continue
			}
			section, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(head)), " ")
			line = strings.TrimSpace(rest)
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		include := (section == "include" || section == "includeif") && key == "path"
		if !ok || !include && (section != "core" || key != "hookspath") {
			continue
		}
		value = strings.TrimSpace(value)
		if strings.HasPrefix(value, `"`) {
			value, _, _ = strings.Cut(value[1:], `"`)
		} else if i := strings.IndexAny(value, "#;"); i >= 0 {
			value = strings.TrimSpace(value[:i])
		}
		if value != "" {
			out = append(out, pointer{value, include})
		}
	}
	return out
}
