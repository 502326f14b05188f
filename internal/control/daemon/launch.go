//go:build linux

package daemon

import (
	"context"
	"os"

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
	f, err := spawn.OpenBinary(d.binary("agentos-launcher"))
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

// shimBinary opens the shim's program for one run.
func (d *Daemon) shimBinary() (*os.File, error) {
	f, err := spawn.OpenBinary(d.binary("agentos-shim"))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "reinstall AgentOS", "open the shim's program")
	}
	return f, nil
}
