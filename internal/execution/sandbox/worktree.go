package sandbox

import (
	"path"
	"strings"

	"agentos/internal/execution/profile"
)

// worktree grants what `git commit` needs of the main repository: everything to
// read, objects, refs, logs and the worktree's own folder to write. Hooks and
// configuration lie in the part that is read only. Spec: C-02.
//
// The .git file is the workspace's, so it may lie: the main repository has to
// know this worktree, or nothing of it is granted.
func (b *builder) worktree(root string, m *Mount) error {
	file := root + "/.git"
	if m.Write && !b.landlock() {
		b.keep(file, m, "says where the repository is")
	}
	own, common, why := b.worktreeDirs(root)
	if why != "" {
		b.note("%s: %s; nothing of a repository is granted for it", file, why)
		return nil
	}
	if err := b.tooWide("the repository", common); err != nil {
		return err
	}
	if up := b.covering(common); up == nil || up.Kind != Bind {
		b.keep(common, m, "repository of the worktree; hooks and config are read only")
	}
	if !m.Write || b.prof.Git != profile.Write {
		return nil
	}
	for _, p := range []string{common + "/objects", common + "/refs", common + "/logs", own} {
		if e, ok := there(b.host, p); ok && e.isDir() {
			b.give(p, m, "commits of the worktree")
		}
	}
	if b.landlock() {
		b.note("landlock-only can't keep %s/commondir read only: look before you run git there", own)
		return nil
	}
	for _, n := range []string{"commondir", "gitdir", "config.worktree"} {
		if e, ok := there(b.host, own+"/"+n); ok && e.isRegular() {
			b.keep(own+"/"+n, m, "Git runs what it says")
		}
	}
	b.watchFor(own + "/config.worktree")
	b.config(common+"/config", root, m)
	return nil
}

// worktreeDirs follows a .git file to the worktree's own folder and the main
// repository, and back.
func (b *builder) worktreeDirs(root string) (own, common, why string) {
	to, ok := b.line(root + "/.git")
	to, prefixed := strings.CutPrefix(to, "gitdir: ")
	if !ok || !prefixed {
		return "", "", "it is no worktree's file"
	}
	own, ok = b.folder(root, to)
	if !ok {
		return "", "", "it leads to no folder"
	}
	to, ok = b.line(own + "/commondir")
	if !ok {
		return "", "", "it leads to a repository elsewhere, " + own + ", that is no worktree's; give that with --ro or --rw"
	}
	common, ok = b.folder(own, to)
	if !ok || path.Dir(own) != common+"/worktrees" {
		return "", "", "the repository it leads to has another shape"
	}
	back, ok := b.line(own + "/gitdir")
	if !ok {
		return "", "", "the repository does not know this worktree"
	}
	if !path.IsAbs(back) {
		back = path.Join(own, back)
	}
	real, _, err := resolve(b.host, back)
	if err != nil || real != root+"/.git" {
		return "", "", "the repository does not know this worktree"
	}
	for _, n := range []string{"objects", "refs"} {
		if e, ok := there(b.host, common+"/"+n); !ok || !e.isDir() {
			return "", "", "the repository it leads to has no " + n
		}
	}
	return own, common, ""
}

// line reads a file of one line.
func (b *builder) line(p string) (string, bool) {
	data, err := b.host.ReadFile(p, 4096)
	s := strings.TrimRight(string(data), "\r\n")
	return s, err == nil && s != "" && !strings.ContainsAny(s, "\n\x00")
}

// folder resolves a path that was read from a file in base.
func (b *builder) folder(base, p string) (string, bool) {
	if !path.IsAbs(p) {
		p = path.Join(base, p)
	}
	real, e, err := resolve(b.host, path.Clean(p))
	return real, err == nil && e.isDir()
}
