package sandbox

import (
	"errors"
	"path"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// maxSiblings bounds the entries of a folder that is shown without one of them.
const maxSiblings = 512

// denies makes denied paths absent. Spec: C-01.
func (b *builder) denies() error {
	for _, p := range b.req.Deny {
		if err := sandboxplan.CheckPath(p); err != nil {
			return err
		}
		real, err := resolveMissing(b.host, p)
		if err != nil {
			return fault.Wrap(err, fault.Usage, "check the path", "plan sandbox: look at --deny %q", p)
		}
		if err := b.deny(real); err != nil {
			return err
		}
	}
	return nil
}

// above finds the topmost mount that shows what is above the host's
// path p itself, and whether any of them can be written.
func (b *builder) above(p string) (top *Mount, writable *Mount) {
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		for _, m := range b.at {
			if m.Kind == Bind && m.Source == dir {
				if m.Write {
					writable = m
				}
				if m.Source == m.Target {
					top = m
				}
			}
		}
	}
	return top, writable
}

func (b *builder) deny(p string) error {
	top, writable := b.above(p)
	if writable != nil {
		return fault.New(fault.Denied, "move it out of "+writable.Target+", or make that read only with --ro "+writable.Source,
			"plan sandbox: %q can't be denied inside the writable %q: a rename would bring it back under another name", p, writable.Source)
	}
	gone := 0
	for _, t := range b.targets() {
		m := b.at[t]
		if m.Kind != Bind && m.Kind != Link || !sandboxplan.Below(t, p) || m.Kind == Bind && m.Source != t {
			continue
		}
		if t == b.dir || m.Why == "--rw" || m.Why == "--ro" {
			return fault.New(fault.Usage, "give one of them", "plan sandbox: --deny %q takes away %q, which was asked for (%s)", p, t, m.Why)
		}
		delete(b.at, t)
		gone++
	}
	switch {
	case top != nil:
		return b.explode(top.Target, p)
	case gone > 0:
		b.note("--deny %s takes %d places away that the profile or the system's view had", p, gone)
	default:
		b.note("--deny %s: the sandbox doesn't show it anyway", p)
	}
	return nil
}

// explode shows everything below top but not p: each folder on the way is made
// anew and holds the siblings, so p is absent and not covered.
func (b *builder) explode(top, p string) error {
	flags, skipped := *b.at[top], 0
	for cur := top; cur != p; {
		if m := b.at[cur]; m != nil && m.Kind == Bind {
			flags = *m
		}
		list, err := b.host.ReadDir(cur, maxSiblings)
		if errors.Is(err, ErrMany) {
			return fault.New(fault.Limit, "deny "+cur+" as a whole, or grant only the folders in it that are needed",
				"plan sandbox: deny %q: %q has more than %d entries", p, cur, maxSiblings)
		}
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "check the folder's rights", "plan sandbox: list %q to deny %q", cur, p)
		}
		b.at[cur] = &Mount{Kind: Folder, Target: cur, Why: flags.Why + ", without " + p}
		if b.landlock() {
			delete(b.at, cur)
		}
		next := p
		for _, e := range list {
			child := path.Join(cur, e.Name)
			if sandboxplan.Below(p, child) {
				if child != p && e.isDir() {
					next = child
				}
				continue
			}
			if b.at[child] == nil && !b.sibling(e, child, flags) {
				skipped++
			}
		}
		cur = next
	}
	b.note("%s is absent; what is made beside it while the run goes on is not seen inside either", p)
	if skipped > 0 {
		b.note("%d entries beside %s are left out: sockets, FIFOs, devices and names that can't be shown", skipped, p)
	}
	return nil
}

func (b *builder) sibling(e Entry, p string, flags Mount) bool {
	if sandboxplan.CheckPath(p) != nil {
		return false
	}
	switch {
	case e.isLink():
		to, err := b.host.Readlink(p)
		if err != nil || to == "" || b.landlock() {
			return b.landlock()
		}
		b.at[p] = &Mount{Kind: Link, Target: p, Source: path.Clean(to), Why: flags.Why}
	case e.isDir() || e.isRegular():
		flags.Source, flags.Target = p, p
		b.at[p] = &flags
	default:
		return false
	}
	return true
}
