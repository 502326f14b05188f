//go:build linux

package daemon

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"agentos/internal/control/launcher"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/fault"
)

// launch returns the launcher, starting it at first need and again when it has
// died. It lives until Close.
func (d *Daemon) launch() (*launcher.Launcher, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.launcher != nil && d.launcher.Alive() {
		return d.launcher, nil
	}
	f, err := d.programLocked("agentos-launcher")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := launcher.Start(context.Background(), f)
	if err != nil {
		return nil, err
	}
	d.launcher = l
	return l, nil
}

// programs are the sister programs of a shared agentosd.
var programs = []string{"agentos-launcher", "agentos-shim", "agentos-loop", "agentos-tool"}

// hold opens the sister programs for as long as this process lives: what it
// starts later speaks its wires, also when an upgrade has put others in their
// place. The caller closes them.
func (d *Daemon) hold() (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	release = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, f := range d.held {
			_ = f.Close()
		}
		d.held = nil
	}
	d.held = map[string]*os.File{}
	for _, name := range programs {
		f, err := spawn.OpenBinary(d.binary(name))
		if err != nil {
			return release, err
		}
		d.held[name] = f
	}
	return release, nil
}

// program opens a sister program: the one held, or the one in its place.
func (d *Daemon) program(name string) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.programLocked(name)
}

func (d *Daemon) programLocked(name string) (*os.File, error) {
	f, ok := d.held[name]
	if !ok {
		return spawn.OpenBinary(d.binary(name))
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "open program %q", name)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
