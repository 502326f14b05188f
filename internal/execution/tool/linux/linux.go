//go:build linux

// Package linux reads this machine for the built-in read-only tools: /proc,
// /sys, package databases, systemd over D-Bus, the journal. It is linked into
// cmd/agentos-tool only; each call runs there in a process of its own, under its
// own UID, confined to what Confine says.
//
// State owned: none; nothing here writes. Imports: execution/tool, lib/canon,
// lib/fault, prometheus/procfs, godbus, x/sys. Imported by: cmd/agentos-tool,
// tests. Lock order: no locks.
//
// Invariants:
//   - Everything read is bounded before it is parsed; a parser's failure is a
//     typed result and never a panic.
//   - Nothing that can hold secrets is opened: no environ, no cmdline, no unit
//     environment, no configuration.
//   - Every string in a result is valid UTF-8 without control characters, bounded.
//   - A result fits the descriptor's MaxResult; what was cut is listed.
//   - No goroutine outlives Run, except one that the kernel holds inside statfs
//     on a filesystem that doesn't answer.
//
// Tests: beside each file; schema_test.go holds results against the catalogue;
// confinement in integration/tool. Spec: OSA-05, OSA-13.
package linux

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentos/internal/execution/tool"
	"agentos/internal/lib/fault"
)

// Host is where the readers look. Local is this machine; tests point the fields
// at fixtures. A Host is immutable and safe for concurrent use.
type Host struct {
	Root       string // prefix of every path, "" for this machine
	RPM        string // rpm program
	RPMDB      string // database directory given to rpm; "" is rpm's own choice
	Journalctl string // journalctl program
	JournalDir string // journal directory given to journalctl; "" is its own choice
	Bus        string // system bus socket, a key of Conns

	// Conns are the connections that Confine asked for, by path; made before the
	// process gave up making any. Run closes the one that it uses.
	Conns map[string]*net.UnixConn

	Interval time.Duration                                    // between the two CPU samples
	Pause    func(ctx context.Context, d time.Duration) error // waits d or until ctx is done
	Now      func() time.Time
	Uname    func(*unix.Utsname) error
	Statfs   func(path string, st *unix.Statfs_t) error
}

// Local is the machine that this process runs on.
func Local() Host {
	return Host{
		RPM: "/usr/bin/rpm", Journalctl: "/usr/bin/journalctl", Bus: "/run/dbus/system_bus_socket",
		Interval: 250 * time.Millisecond, Pause: pause, Now: time.Now, Uname: unix.Uname, Statfs: unix.Statfs,
	}
}

func (h Host) path(p string) string { return h.Root + p }

func (h Host) exists(p string) bool {
	_, err := os.Stat(h.path(p))
	return err == nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Run executes one call of the tool that d describes and always returns a
// Result: bad arguments, a missing host feature and a passed deadline are
// results too. args is one JSON object. The call ends within d.Deadline.
func Run(ctx context.Context, h Host, d tool.Descriptor, args []byte) tool.Result {
	ctx, cancel := context.WithTimeout(ctx, d.Deadline)
	defer cancel()
	doc, err := call(ctx, h, d, args)
	if ctx.Err() != nil {
		err = ctx.Err() // whatever it broke on the way
	}
	if err != nil {
		return Failure(err)
	}
	return fit(doc, d.MaxResult)
}

func call(ctx context.Context, h Host, d tool.Descriptor, raw []byte) (document, error) {
	args, err := decode(d.Name, raw, d.MaxArgs)
	if err != nil {
		return nil, err
	}
	switch a := args.(type) {
	case systemArgs:
		return inspectSystem(ctx, h, a)
	case npuArgs:
		return inspectNPU(ctx, h)
	case packageArgs:
		return queryPackage(ctx, h, a)
	case serviceArgs:
		return inspectService(ctx, h, a)
	case journalArgs:
		return readJournal(ctx, h, a)
	}
	return nil, fault.New(fault.NotFound, "ask for one of the tools in the catalogue", "find tool %q", d.Name)
}

// Failure turns an error into a result of status error, or unavailable for a fault
// of that kind; its texts are cleaned like any data.
func Failure(err error) tool.Result {
	r := tool.Result{Status: "error"}
	var f *fault.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.Error, r.Next = "read the machine: deadline passed", "ask for less, or try again when the machine is less busy"
		return r
	case errors.Is(err, context.Canceled):
		r.Error, r.Next = "read the machine: call cancelled", "call again if the result is still wanted"
		return r
	case errors.As(err, &f):
		if f.Kind == fault.Unavailable {
			r.Status = "unavailable"
		}
		r.Next = line(f.Next, 512)
	}
	r.Error = line(strings.TrimSpace(err.Error()), 1024)
	return r
}
