package confine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// Apply locks the process down as p says, in this order: identity check,
// capabilities, no_new_privs, not dumpable, resource limits, Landlock, the
// connections of p.Connect, seccomp on all threads, and a self-check. It is not
// safe for concurrent use and can't be undone. After an error the process is in
// a state between and must exit.
func Apply(p Plan) (Report, error) {
	if err := p.check(); err != nil {
		return Report{}, p.fault(err, fault.Usage, "correct the plan")
	}
	if p.Profile == Tool && len(p.Exec) > 0 {
		p.Profile = ToolExec
	}
	r := Report{Profile: p.Profile}
	if p.NonRoot {
		if err := checkNonRoot(); err != nil {
			return r, p.fault(err, fault.Denied, "give the process its own non-root user and group")
		}
	}
	if p.Profile == ToolExec {
		primeProcesses()
	}
	// For ps: a binary run by descriptor is named after the descriptor. Where
	// /proc is not mounted the name stays.
	_ = os.WriteFile("/proc/self/comm", []byte(p.Name), 0)
	conns, err := connect(p.Connect)
	if err != nil {
		return r, p.fault(err, fault.Unavailable, "start the service that owns the socket")
	}
	r.Conns = conns
	if err := lock(p, &r); err != nil {
		closeAll(conns)
		next := "run `agentos doctor` to see what this kernel lacks"
		return r, p.fault(err, fault.Unavailable, next)
	}
	return r, nil
}

// lock is the part of Apply that changes the process.
func lock(p Plan, r *Report) error {
	var err error
	if r.Bounding, err = DropCapabilities(); err != nil {
		return err
	}
	if err := AllPrctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set not dumpable: %w", err)
	}
	if err := limit(p.OpenFiles); err != nil {
		return err
	}
	if err := restrictFiles(p, r); err != nil {
		return err
	}
	if err := installFilter(p.Profile); err != nil {
		return err
	}
	return selfCheck(p)
}

func (p *Plan) fault(err error, k fault.Kind, next string) error {
	return fault.Wrap(err, k, next, "confine process %q", p.Name)
}

func (p *Plan) check() error {
	files := len(p.Read) + len(p.Exec) + len(p.Connect)
	switch p.Profile {
	case Loop, Shim:
		if files > 0 || p.Procs {
			return fmt.Errorf("%w: profile %q takes no paths", ErrPlan, p.Profile)
		}
	case Tool:
	case ToolExec:
		if len(p.Exec) == 0 {
			return fmt.Errorf("%w: profile %q without anything to execute", ErrPlan, p.Profile)
		}
	default:
		return fmt.Errorf("%w: unknown profile %q", ErrPlan, p.Profile)
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return fmt.Errorf("%w: no syscall list for %s", ErrSeccomp, runtime.GOARCH)
	}
	for _, list := range [][]string{p.Read, p.Exec, p.Connect} {
		for _, s := range list {
			if !filepath.IsAbs(s) || filepath.Clean(s) != s {
				return fmt.Errorf("%w: path %q is not absolute and clean", ErrPlan, s)
			}
		}
	}
	return nil
}

// connect opens the declared connections; a connection that can't be made is an
// error, since the process was started for it.
func connect(paths []string) (map[string]*net.UnixConn, error) {
	conns := make(map[string]*net.UnixConn, len(paths))
	for _, p := range paths {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p, Net: "unix"})
		if err != nil {
			closeAll(conns)
			return nil, fmt.Errorf("connect socket %q: %w", p, err)
		}
		conns[p] = c
	}
	return conns, nil
}

func closeAll(conns map[string]*net.UnixConn) {
	for _, c := range conns {
		_ = c.Close() // on the way to an error that ends the process
	}
}

// primeProcesses makes package os find out about pidfds now: later the filter
// refuses pidfd_open, and children could not be killed.
func primeProcesses() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release() // frees the pidfd only
	}
}

// selfCheck tries what must fail. A kernel or a library that accepted a filter
// and doesn't enforce it is caught here, before any foreign byte is read.
func selfCheck(p Plan) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	if !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("%w: self-check: socket returned %v", ErrSeccomp, err)
	}
	if p.Profile != Loop && p.Profile != Shim {
		return nil
	}
	fd, err = unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	if !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("%w: self-check: open returned %v", ErrSeccomp, err)
	}
	return nil
}
