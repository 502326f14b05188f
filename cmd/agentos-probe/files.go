//go:build linux

package main

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"agentos/internal/lib/sandboxplan"
)

const (
	gone     = "absent"
	closed   = "can't be opened"
	inReach  = "in reach"
	complete = "what the plan lists"
)

// folders holds the private root and its folders against the plan: nothing else
// is in them, and nothing can be made there.
func (c *checker) folders() {
	if c.bare {
		c.closed("/") // the host's
		c.closed("/proc")
		return
	}
	c.contents("/")
	for _, m := range c.plan.Mounts {
		if m.Kind == sandboxplan.Folder {
			c.contents(m.Target)
		}
	}
}

func (c *checker) contents(dir string) {
	want, optional := map[string]bool{}, map[string]bool{}
	for _, m := range c.plan.Mounts {
		if path.Dir(m.Target) == dir {
			want[path.Base(m.Target)], optional[path.Base(m.Target)] = true, m.Optional
		}
	}
	for _, f := range c.plan.Files {
		if path.Dir(f.Path) == dir {
			want[path.Base(f.Path)] = true
		}
	}
	got, err := c.m.list(dir)
	if err != nil {
		c.add("contents of "+dir, complete, "can't be listed", because(err))
		return
	}
	c.compare("contents of "+dir, want, optional, got)
	if c.loose(dir) {
		return
	}
	err = c.m.create(dir)
	c.add("new file in "+dir, "refused", outcome(err), because(err))
}

// loose folders are made in a private tmpfs, where the agent may write anyway.
func (c *checker) loose(dir string) bool {
	return slices.ContainsFunc(c.plan.Mounts, func(m sandboxplan.Mount) bool {
		return m.Kind == sandboxplan.Tmpfs && m.Write && sandboxplan.Below(dir, m.Target)
	})
}

// compare two sets of names.
func (c *checker) compare(check string, want, optional map[string]bool, got []string) {
	var more, less []string
	for _, n := range got {
		if !want[n] {
			more = append(more, n)
		}
	}
	for n := range want {
		if !optional[n] && !slices.Contains(got, n) {
			less = append(less, n)
		}
	}
	slices.Sort(more)
	slices.Sort(less)
	kernel := complete
	if len(less) > 0 {
		kernel = "without " + strings.Join(less, ", ")
	}
	if len(more) > 0 {
		kernel = "also " + strings.Join(more, ", ")
	}
	c.add(check, complete, kernel, "")
}

// place holds one mount against the plan.
func (c *checker) place(m sandboxplan.Mount) {
	switch m.Kind {
	case sandboxplan.Bind, sandboxplan.Tmpfs:
		c.rights(m)
	case sandboxplan.Link:
		_, err := c.m.look(m.Target)
		c.add("link "+m.Target, "there", there(err), because(err))
	case sandboxplan.Dev:
		c.devices(m.Target)
	case sandboxplan.Proc:
		err := c.m.write(path.Join(m.Target, "sys/kernel/hostname"))
		c.add("write "+m.Target+"/sys", "refused", outcome(err), because(err))
	}
}

// rights are what may be done below a mount.
func (c *checker) rights(m sandboxplan.Mount) {
	check := string(m.Kind) + " " + m.Target
	dir, err := c.m.look(m.Target)
	if err != nil {
		want := text(m.Write, m.Exec)
		if m.Optional {
			want = gone
		}
		c.add(check, want, there(err), because(err))
		return
	}
	ro, noexec, flagErr := c.m.mount(m.Target)
	var why []string
	note := func(err error) {
		if err != nil {
			why = append(why, err.Error())
		}
	}
	try := c.m.write
	if dir {
		try = c.m.create
	}
	err = try(m.Target)
	note(err)
	write := err == nil
	switch {
	case write, errors.Is(err, syscall.EROFS):
	case !c.m.mode(m.Target):
		// The owner's own modes refuse; what the sandbox does, the mount says.
		write = m.Write && c.bare
		if !c.bare {
			write = flagErr == nil && !ro
			why = append(why, "the file's own mode")
		}
	case !c.bare && flagErr == nil && !ro:
		why = append(why, "the mount itself is writable")
		write = write || !m.Write
	}
	exec, known, err := c.exec(m, dir, write, noexec, flagErr)
	note(err)
	if !known {
		exec = m.Exec
		why = append(why, "no program there to try")
	}
	c.add(check, text(m.Write, m.Exec), text(write, exec), strings.Join(why, "; "))
}

// exec reports whether the kernel runs code from a mount: a file made there, or
// one that is there mapped as code, or what the mount says of itself.
func (c *checker) exec(m sandboxplan.Mount, dir, write, noexec bool, flagErr error) (yes, known bool, err error) {
	if dir && write {
		err := c.m.run(m.Target)
		switch {
		case errors.Is(err, syscall.ENOEXEC): // let in, and then no program
			return true, true, nil
		case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
			return false, true, err
		}
	}
	if c.bare {
		return false, false, nil // mapping is not Landlock's, and there is no mount
	}
	if !dir {
		err := c.m.load(m.Target)
		if err == nil || errors.Is(err, syscall.EPERM) {
			return err == nil, true, err
		}
	}
	return !noexec, flagErr == nil, flagErr
}

func (c *checker) devices(dir string) {
	if !c.bare {
		want := map[string]bool{"pts": true, "shm": true, "fd": true, "stdin": true, "stdout": true, "stderr": true, "ptmx": true}
		for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
			want[n] = true
		}
		got, err := c.m.list(dir)
		if err != nil {
			c.add("contents of "+dir, complete, "can't be listed", because(err))
		} else {
			c.compare("contents of "+dir, want, nil, got)
		}
	} else {
		c.closed(dir)
	}
	err := c.m.create(dir)
	c.add("new file in "+dir, "refused", outcome(err), because(err))
	err = c.m.write(path.Join(dir, "null"))
	c.add("write "+dir+"/null", "allowed", outcome(err), because(err))
}

// files are those made for the run.
func (c *checker) files() {
	for _, f := range c.plan.Files {
		err := c.m.read(f.Path)
		kernel := "read"
		if err != nil {
			kernel = there(err)
		} else if c.m.write(f.Path) == nil {
			kernel = "read, write"
		}
		c.add("file "+f.Path, "read", kernel, because(err))
	}
}

// hidden are places of every host that no plan shows unless somebody asks.
func hidden() []string {
	return []string{
		"/sys", "/root", "/boot", "/etc/shadow", "/etc/ssh", "/var/lib", "/run/docker.sock", "/var/run/docker.sock",
		"/run/containerd/containerd.sock", "/run/systemd/private", "/run/dbus/system_bus_socket",
	}
}

// absent are the places that must be out of reach. The caller's count whatever
// the plan shows; those of every host only where the plan doesn't show them.
func (c *checker) absent(paths []string) {
	seen := map[string]bool{}
	for i, p := range append(slices.Clone(paths), hidden()...) {
		if seen[p] || c.holds(p) || i >= len(paths) && c.shows(p) {
			continue
		}
		seen[p] = true
		if c.bare {
			c.closed(p)
			continue
		}
		_, err := c.m.look(p)
		kernel := there(err)
		if err != nil {
			if e := c.m.read(p); e == nil {
				kernel = inReach
			}
		}
		c.add("host's "+p, gone, kernel, because(err))
	}
}

// closed: Landlock does not hide a name, it refuses to open it.
func (c *checker) closed(p string) {
	err := c.m.read(p)
	kernel := closed
	if err == nil {
		kernel = inReach
	}
	c.add("host's "+p, closed, kernel, because(err))
}

// holds reports whether p is a folder made to hold something of the plan; what
// is in it contents has seen.
func (c *checker) holds(p string) bool {
	return slices.ContainsFunc(c.plan.Mounts, func(m sandboxplan.Mount) bool { return m.Kind == sandboxplan.Folder && m.Target == p })
}

// shows reports whether p is in the plan's view, or holds a part of it.
func (c *checker) shows(p string) bool {
	return slices.ContainsFunc(c.plan.Mounts, func(m sandboxplan.Mount) bool {
		return m.Kind == sandboxplan.Bind && (sandboxplan.Below(p, m.Target) || sandboxplan.Below(m.Target, p))
	})
}

func text(write, exec bool) string {
	s := "read"
	if write {
		s += ", write"
	}
	if exec {
		s += ", exec"
	}
	return s
}

// there says whether a name was found.
func there(err error) string {
	switch {
	case err == nil:
		return "there"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return gone
	}
	return "can't be looked at"
}

// outcome of what must be refused for want of permission: an error of another
// kind came after the kernel had agreed.
func outcome(err error) string {
	for _, e := range []error{syscall.EPERM, syscall.EACCES, syscall.EROFS, syscall.ENOSYS} {
		if errors.Is(err, e) {
			return "refused"
		}
	}
	return "allowed"
}
