package spawn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// Spec: INV-05. The end of the context, Kill and the leader's own exit each take
// the whole group along.
func TestGroupDies(t *testing.T) {
	self := binary(t, "/proc/self/exe")
	for name, end := range map[string]func(p *Process, cancel func()){
		"kill":          func(p *Process, _ func()) { _ = p.Kill() },
		"context":       func(_ *Process, cancel func()) { cancel() },
		"leader leaves": nil,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, w := pipe(t)
			how := "stay"
			if end == nil {
				how = "leave"
			}
			p, err := Start(ctx, Spec{Binary: self, Argv: []string{"child", "family", how}, Stdout: w})
			if err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			grandchild := readPID(t, r)
			if end != nil {
				end(p, cancel)
			}
			if _, err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			gone(t, grandchild)
		})
	}
}

// A killed parent takes its child along.
func TestParentDies(t *testing.T) {
	r, w := pipe(t)
	p := start(t, Spec{Binary: binary(t, "/proc/self/exe"), Argv: []string{"child", "parent"}, Stdout: w})
	_ = w.Close()
	pid := readPID(t, r) // in a session of its own: a group kill doesn't reach it
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

func TestWaitContext(t *testing.T) {
	p := start(t, Spec{Binary: binary(t, "/proc/self/exe"), Argv: []string{"child", "block"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Start(ctx, Spec{}); fault.KindOf(err) != fault.Cancelled {
		t.Errorf("start: %v", err)
	}
}

func TestCgroup(t *testing.T) {
	dir := cgroup2(t)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	out, _ := output(t, Spec{Binary: binary(t, "/bin/cat"), Argv: []string{"cat", "/proc/self/cgroup"}, Cgroup: f})
	if !strings.Contains(out, "/"+filepath.Base(dir)+"\n") {
		t.Errorf("cgroups of the child: %q", out)
	}
}

// cgroup2 makes a group of its own at the root of the v2 hierarchy.
func cgroup2(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err == nil {
			dir, err := os.MkdirTemp(root, "agentos-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(dir) })
			return dir
		}
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	sub, err := os.MkdirTemp(dir, "agentos-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(sub) })
	return sub
}

func readPID(t *testing.T, r *os.File) int {
	t.Helper()
	b := make([]byte, 32)
	n, err := r.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone waits until pid ended. It may have been reaped already, or be a zombie
// that nobody waits for.
func gone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((10 * time.Second).Milliseconds()))
	if n != 1 || err != nil {
		t.Errorf("process %d still runs (%v)", pid, err)
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
