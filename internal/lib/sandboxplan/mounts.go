package sandboxplan

import (
	"path"

	"agentos/internal/lib/fault"
)

// among reports whether clean path p is, or is below, one of the trees, which
// are named relative to the root.
func among(p string, trees ...string) bool {
	for _, t := range trees {
		if Below(p, "/"+t) {
			return true
		}
	}
	return false
}

// System reports whether clean path p belongs to the operating system: nobody
// writes there through a sandbox.
func System(p string) bool {
	return among(p, "bin", "boot", "dev", "efi", "etc", "lib", "lib32", "lib64", "libx32",
		"proc", "run", "sbin", "sys", "usr", "var/run", "var/lock")
}

// Whole reports whether p is a folder that holds other people's and services'
// things: a grant to write there is a mistake.
func Whole(p string) bool {
	for _, t := range []string{"", "home", "var", "var/lib", "var/cache", "var/log", "var/spool", "media", "mnt"} {
		if p == "/"+t {
			return true
		}
	}
	return false
}

// Closed reports whether p is in a tree that a bind never shows: the kernel's
// interfaces and the sockets of services. What a sandbox needs of them comes as
// a kind of its own.
func Closed(p string) bool { return among(p, "proc", "sys", "dev", "run", "var/run") }

func (p *Plan) checkMounts() error {
	if len(p.Mounts) > MaxMounts {
		return fault.New(fault.Limit, "grant whole folders instead of many paths", "read plan: %d mounts, at most %d", len(p.Mounts), MaxMounts)
	}
	seen := map[string]int{}
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if err := m.check(); err != nil {
			return err
		}
		if _, twice := seen[m.Target]; twice {
			return refuse("name it once", "read plan: %q is mounted twice", clip(m.Target))
		}
		if err := p.checkParent(m, seen); err != nil {
			return err
		}
		seen[m.Target] = i
	}
	return p.checkAliases()
}

// check looks at one mount alone.
func (m *Mount) check() error {
	if err := CheckPath(m.Target); err != nil {
		return err
	}
	if m.Target == "/" {
		return refuse("list what the sandbox may see", "read plan: the root itself can't be mounted")
	}
	if m.SizeBytes != 0 && m.Kind != Tmpfs {
		return refuse("remove the size", "read plan: only a tmpfs has a size, %q is a %s", clip(m.Target), m.Kind)
	}
	if m.Owned && m.Kind != Bind || m.Optional && m.Kind != Bind {
		return refuse("use it with a bind", "read plan: %q: owned and optional are for binds", clip(m.Target))
	}
	switch m.Kind {
	case Bind:
		return m.checkBind()
	case Link:
		return m.checkLink()
	case Tmpfs:
		if m.SizeBytes < 4096 || m.SizeBytes > MaxBytes {
			return refuse("give it from 4 KiB to 1 PiB", "read plan: tmpfs %q has %d bytes", clip(m.Target), m.SizeBytes)
		}
		if System(m.Target) && !Below(m.Target, "/run") || m.Target == "/sys" {
			return refuse("leave it absent", "read plan: a tmpfs can't stand at %q", clip(m.Target))
		}
	case Folder:
		if m.Write || m.Exec {
			return refuse("use a tmpfs", "read plan: folder %q holds children only", clip(m.Target))
		}
	case Proc:
		if m.Target != "/proc" || m.Write || m.Exec {
			return refuse("put it at /proc, without flags", "read plan: proc at %q", clip(m.Target))
		}
	case Dev:
		if m.Target != "/dev" || m.Exec {
			return refuse("put it at /dev, without exec", "read plan: dev at %q", clip(m.Target))
		}
	default:
		return refuse("use bind, tmpfs, proc, dev, folder or link", "read plan: %q has unknown kind %q", clip(m.Target), clip(string(m.Kind)))
	}
	if m.Source != "" {
		return refuse("remove the source", "read plan: %s %q has a source", m.Kind, clip(m.Target))
	}
	return nil
}

func (m *Mount) checkBind() error {
	if err := CheckPath(m.Source); err != nil {
		return err
	}
	if m.Source == "/" {
		return refuse("grant the folders that are needed", "read plan: the whole host can't be shown at %q", clip(m.Target))
	}
	if Closed(m.Source) {
		return refuse("the sandbox has its own /proc and /dev; sockets of services are not shown", "read plan: %q can't be shown in a sandbox", clip(m.Source))
	}
	if Below(m.Target, "/proc") || Below(m.Target, "/dev") || Below(m.Target, "/sys") {
		return refuse("choose another place", "read plan: nothing can be shown at %q", clip(m.Target))
	}
	if m.Write && (System(m.Source) || Whole(m.Source)) {
		return fault.New(fault.Denied, "grant a folder of your own, or use --ro", "read plan: %q belongs to the system and can't be writable", clip(m.Source))
	}
	if m.Write && (System(m.Target) || Whole(m.Target)) {
		return fault.New(fault.Denied, "choose another place", "read plan: %q can't be writable in a sandbox", clip(m.Target))
	}
	return nil
}

func (m *Mount) checkLink() error {
	if m.Write || m.Exec {
		return refuse("remove the flags", "read plan: link %q has no access of its own", clip(m.Target))
	}
	to := m.Source
	if !path.IsAbs(to) {
		to = path.Join(path.Dir(m.Target), to)
	}
	if m.Source == "" || m.Source == "." || path.Clean(m.Source) != m.Source {
		return refuse("give a clean path", "read plan: link %q points to %q", clip(m.Target), clip(m.Source))
	}
	if err := CheckPath(to); err != nil {
		return err
	}
	if Below(to, m.Target) {
		return refuse("point it elsewhere", "read plan: link %q points to itself", clip(m.Target))
	}
	return nil
}

// enclosing returns the nearest earlier mount above target, or -1 for the root.
func (p *Plan) enclosing(target string, seen map[string]int) int {
	for dir := path.Dir(target); dir != "/"; dir = path.Dir(dir) {
		if i, ok := seen[dir]; ok {
			return i
		}
	}
	return -1
}

// checkParent: the place of a mount exists without anything being made on the
// host (C-03), and nothing is hidden by covering it (C-01): a cover comes off
// when somebody outside renames what it covers.
func (p *Plan) checkParent(m *Mount, seen map[string]int) error {
	i := p.enclosing(m.Target, seen)
	parent := path.Dir(m.Target)
	if i < 0 {
		if parent == "/" || p.Strength == LandlockOnly { // there the root is the host's
			return nil
		}
		return refuse("list its parents first", "read plan: %q has no parent in the plan", clip(m.Target))
	}
	up := &p.Mounts[i]
	switch up.Kind {
	case Folder, Tmpfs:
		if up.Target == parent {
			return nil
		}
		return refuse("list its parents first", "read plan: %q has no parent in the plan", clip(m.Target))
	case Bind:
		if m.Kind != Bind || m.Source != up.Source+m.Target[len(up.Target):] {
			return refuse("deny a path by leaving it out: list its siblings instead of its parent",
				"read plan: %q would cover a part of %q, and a cover can come off", clip(m.Target), clip(up.Target))
		}
		if m.Optional {
			return refuse("look before planning", "read plan: %q inside %q can't be optional", clip(m.Target), clip(up.Target))
		}
		return nil
	}
	return refuse("choose another place", "read plan: %q can't stand inside the %s at %q", clip(m.Target), up.Kind, clip(up.Target))
}

// checkAliases: no file can be reached at two places of which one is writable,
// or the narrower one of them would mean nothing.
func (p *Plan) checkAliases() error {
	writable := 0
	for _, m := range p.Mounts {
		if m.Write && m.Kind == Bind {
			writable++
		}
	}
	if writable*len(p.Mounts) > 1<<20 {
		return fault.New(fault.Limit, "grant whole folders instead of many paths", "read plan: %d writable mounts", writable)
	}
	for _, w := range p.Mounts {
		if w.Kind != Bind || !w.Write {
			continue
		}
		for _, o := range p.Mounts {
			if o.Kind != Bind || o.Target == w.Target {
				continue
			}
			up, down := w, o
			if Below(w.Source, o.Source) && w.Source != o.Source {
				up, down = o, w
			}
			if Below(down.Source, up.Source) && down.Target != up.Target+down.Source[len(up.Source):] {
				return refuse("grant it once", "read plan: %q is shown at %q and, with other rights, inside %q", clip(down.Source), clip(down.Target), clip(up.Target))
			}
		}
	}
	return nil
}

func (p *Plan) checkFiles() error {
	if len(p.Files) > MaxFiles {
		return fault.New(fault.Limit, "bind a folder", "read plan: %d files, at most %d", len(p.Files), MaxFiles)
	}
	folders, taken := map[string]bool{"/": true}, map[string]bool{}
	for _, m := range p.Mounts {
		taken[m.Target] = true
		if m.Kind == Folder {
			folders[m.Target] = true
		}
	}
	for _, f := range p.Files {
		if err := CheckPath(f.Path); err != nil {
			return err
		}
		switch {
		case f.Path == "/" || !folders[path.Dir(f.Path)]:
			return refuse("put it in a folder of the plan", "read plan: file %q is in no folder of the private root", clip(f.Path))
		case taken[f.Path]:
			return refuse("name it once", "read plan: %q is there twice", clip(f.Path))
		case len(f.Data) > MaxFileData:
			return fault.New(fault.Limit, "bind it", "read plan: file %q has %d bytes, at most %d", clip(f.Path), len(f.Data), MaxFileData)
		}
		taken[f.Path] = true
	}
	return nil
}

// checkPlaces: the working directory and the home are places of the plan.
func (p *Plan) checkPlaces() error {
	for _, d := range []struct{ what, dir string }{{"working directory", p.Dir}, {"home", p.Identity.Home}} {
		if err := CheckPath(d.dir); err != nil {
			return err
		}
		if !p.shows(d.dir) {
			return refuse("grant it with --ro or --rw", "read plan: the %s %q is not in the sandbox", d.what, clip(d.dir))
		}
	}
	return nil
}

// shows reports whether the plan has a place dir that can hold a process: a
// mount or folder itself, or something below a bind or a tmpfs.
func (p *Plan) shows(dir string) bool {
	if dir == "/" {
		return true
	}
	for _, m := range p.Mounts {
		switch m.Kind {
		case Bind:
			if Below(dir, m.Target) {
				return true
			}
		case Tmpfs, Folder:
			if dir == m.Target {
				return true
			}
		}
	}
	return false
}
