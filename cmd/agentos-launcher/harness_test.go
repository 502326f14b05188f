//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"agentos/internal/api/launchwire"
	"agentos/internal/host/confine"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/seccomp"
	"agentos/internal/lib/sandboxplan"
)

// The tests start the test binary as the launcher, which starts it again as the
// first process of sandboxes. Those of root run as root; those without root start
// the launcher as another user.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "agentos-launcher":
		if err := inject(os.Getenv("FAULT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		main()
		os.Exit(0)
	case "agentos-sandbox":
		main()
		os.Exit(0)
	case "probe":
		os.Exit(probe())
	}
	os.Exit(m.Run())
}

const (
	owner   = 54321 // whose files they are, and who starts launchers without root
	agentID = 54399 // the agent's own at full strength
	wait    = 20 * time.Second
)

// launcher is a running one, and this side of its wire.
type launcher struct {
	t     testing.TB
	cmd   *exec.Cmd
	wire  *fdframe.Conn
	errs  *bytes.Buffer
	dead  bool // it was killed
	quiet bool // it may complain

	mu    sync.Mutex
	boxes map[string]*box
	pong  chan launchwire.Pong
	over  chan struct{} // closed when the wire ended
}

// box is one sandbox, seen from the shim.
type box struct {
	t       testing.TB
	run     string
	shim    *net.UnixConn
	stdio   []*os.File // the terminal's master, or stdin, stdout, stderr
	started chan launchwire.Started
	pidfd   *os.File
	failed  chan launchwire.Failed
	exited  chan launchwire.Exited
}

// inject makes one system call fail from here on, also in all that is started.
func inject(call string) error {
	if call == "" {
		return nil
	}
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	f := seccomp.Filter{Refuse: []string{call}}
	for name := range info.SyscallNames {
		if name != call {
			f.Allow = append(f.Allow, name)
		}
	}
	slices.Sort(f.Allow)
	if err := confine.AllPrctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return err
	}
	return seccomp.Install(f)
}

// launch starts a launcher as uid.
func launch(t testing.TB, uid int, env ...string) *launcher {
	t.Helper()
	ours, theirs, err := fdframe.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	l := &launcher{t: t, errs: &bytes.Buffer{}, boxes: map[string]*box{}, pong: make(chan launchwire.Pong, 1), over: make(chan struct{})}
	// By descriptor: another user can't reach the test binary by its path.
	l.cmd = &exec.Cmd{Path: "/proc/self/fd/3", Args: []string{"agentos-launcher"}, Env: append([]string{"SECRET=launcher"}, env...),
		Stdin: theirs, Stderr: l.errs, ExtraFiles: []*os.File{self}}
	l.cmd.SysProcAttr = &syscall.SysProcAttr{}
	if uid != 0 {
		l.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := fdframe.Inherited(ours)
	if err != nil {
		t.Fatal(err)
	}
	l.wire = fdframe.New(c, launchwire.MaxMessage)
	go l.read()
	t.Cleanup(l.close)
	return l
}

// close hangs up and waits for the launcher's own end.
func (l *launcher) close() {
	if l.dead {
		return
	}
	l.dead = true
	_ = l.wire.Close()
	done := make(chan struct{})
	go func() { _ = l.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(wait):
		l.t.Error("the launcher did not end with its wire")
		_ = l.cmd.Process.Kill()
		<-done
	}
	if l.errs.Len() > 0 && !l.quiet {
		l.t.Errorf("launcher said: %s", l.errs)
	}
}

func (l *launcher) read() {
	defer close(l.over)
	for {
		b, files, err := l.wire.Read()
		if err != nil {
			return
		}
		r, err := launchwire.DecodeReply(b)
		if err != nil {
			l.t.Error(err)
			return
		}
		l.mu.Lock()
		switch {
		case r.Started != nil:
			if x := l.boxes[r.Started.Run]; len(files) == 1 {
				x.pidfd = files[0]
				x.started <- *r.Started
			}
		case r.Failed != nil:
			if x := l.boxes[r.Failed.Run]; x != nil {
				x.failed <- *r.Failed
			}
		case r.Exited != nil:
			if x := l.boxes[r.Exited.Run]; x != nil {
				x.exited <- *r.Exited
			}
		case r.Pong != nil:
			l.pong <- *r.Pong
		}
		l.mu.Unlock()
	}
}

func (l *launcher) send(r launchwire.Request, files ...*os.File) {
	l.t.Helper()
	b, err := launchwire.EncodeRequest(r)
	if err == nil {
		err = l.wire.Write(b, files...)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// start asks for a sandbox.
func (l *launcher) start(p sandboxplan.Plan) *box {
	l.t.Helper()
	ours, theirs, err := fdframe.Pair()
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := fdframe.Inherited(ours)
	if err != nil {
		l.t.Fatal(err)
	}
	x := &box{t: l.t, run: p.Run, shim: c, started: make(chan launchwire.Started, 1), failed: make(chan launchwire.Failed, 1), exited: make(chan launchwire.Exited, 1)}
	l.t.Cleanup(func() { _ = c.Close() })
	l.mu.Lock()
	l.boxes[p.Run] = x
	l.mu.Unlock()
	b, err := launchwire.EncodeRequest(launchwire.Request{Start: &launchwire.Start{Plan: p}})
	if err != nil {
		l.t.Fatal(err)
	}
	_ = l.wire.Write(b, theirs) // a launcher that is gone shows in over
	_ = theirs.Close()
	return x
}

// ready takes the command's descriptors from the lifeline.
func (x *box) ready() {
	x.t.Helper()
	_ = x.shim.SetDeadline(time.Now().Add(wait))
	b, files, err := fdframe.New(x.shim, 1024).Read()
	if err != nil {
		select {
		case f := <-x.failed:
			x.t.Fatalf("not started: %+v", f)
		case <-time.After(wait):
		}
		x.t.Fatal(err)
	}
	_ = x.shim.SetDeadline(time.Time{})
	if string(b) != `{"ready":true}` {
		x.t.Fatalf("ready message %q", b)
	}
	x.stdio = files
	x.t.Cleanup(func() {
		for _, f := range files {
			_ = f.Close()
		}
	})
}

// end waits for the sandbox's end and returns it with all output.
func (x *box) end() (launchwire.Exited, string) {
	x.t.Helper()
	if x.stdio == nil {
		x.ready()
	}
	var out bytes.Buffer
	if len(x.stdio) == 3 {
		_ = x.stdio[0].Close()
		var wg sync.WaitGroup
		var errOut bytes.Buffer
		wg.Go(func() { _, _ = io.Copy(&out, x.stdio[1]) })
		wg.Go(func() { _, _ = io.Copy(&errOut, x.stdio[2]) })
		wg.Wait()
		out.Write(errOut.Bytes())
	} else {
		_, err := io.Copy(&out, x.stdio[0])
		if err != nil && !errors.Is(err, syscall.EIO) { // the terminal's other side is gone
			x.t.Error(err)
		}
	}
	return x.gone(), out.String()
}

func (x *box) gone() launchwire.Exited {
	x.t.Helper()
	select {
	case e := <-x.exited:
		return e
	case <-time.After(wait):
		x.t.Fatal("the sandbox did not end")
	}
	return launchwire.Exited{}
}

func (x *box) refused() launchwire.Failed {
	x.t.Helper()
	select {
	case f := <-x.failed:
		return f
	case s := <-x.started:
		x.t.Fatalf("started: %+v", s)
	case <-time.After(wait):
		x.t.Fatal("no answer")
	}
	return launchwire.Failed{}
}

// mode is a way to run the tests: as root, and as an ordinary user.
type mode struct {
	name     string
	uid      int // of the launcher
	strength sandboxplan.Strength
}

func modes() []mode {
	return []mode{{"full", 0, sandboxplan.Full}, {"rootless", owner, sandboxplan.Rootless}}
}

// each runs f as a subtest of every mode.
func each(t *testing.T, f func(t *testing.T, m mode)) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			f(t, m)
		})
	}
}

func (m mode) id() uint32 {
	if m.strength == sandboxplan.Full {
		return agentID
	}
	return owner
}

// plan is an ordinary sandbox that runs a shell script in a workspace.
func (m mode) plan(run, work, script string) sandboxplan.Plan {
	p := sandboxplan.Plan{
		Version: sandboxplan.Version, Run: run, Strength: m.strength,
		Command: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin", "HOME=/home/agent"}, Dir: "/home/agent",
		Identity: sandboxplan.Identity{UID: m.id(), GID: m.id(), OwnerUID: owner, OwnerGID: owner, User: "agent", Home: "/home/agent"},
		Hostname: "box",
		Mounts: []sandboxplan.Mount{
			{Kind: sandboxplan.Bind, Source: "/usr", Target: "/usr", Exec: true, Why: "test"},
			{Kind: sandboxplan.Link, Source: "usr/bin", Target: "/bin", Why: "test"},
			{Kind: sandboxplan.Link, Source: "usr/lib", Target: "/lib", Why: "test"},
			{Kind: sandboxplan.Link, Source: "usr/lib64", Target: "/lib64", Why: "test"},
			{Kind: sandboxplan.Proc, Target: "/proc", Why: "test"},
			{Kind: sandboxplan.Dev, Target: "/dev", Why: "test"},
			{Kind: sandboxplan.Tmpfs, Target: "/tmp", Write: true, SizeBytes: 16 << 20, Why: "test"},
			{Kind: sandboxplan.Folder, Target: "/home", Why: "test"},
			{Kind: sandboxplan.Folder, Target: "/etc", Why: "test"},
			{Kind: sandboxplan.Tmpfs, Target: "/home/agent", Write: true, Exec: true, SizeBytes: 16 << 20, Why: "test"},
		},
		Files: []sandboxplan.File{{Path: "/etc/passwd", Data: "agent:x:1:1::/home/agent:/bin/sh\n", Why: "test"}},
	}
	if work != "" {
		p.Mounts = append(p.Mounts, sandboxplan.Mount{Kind: sandboxplan.Bind, Source: work, Target: "/project", Write: true, Exec: true, Owned: true, Why: "test"})
		p.Dir = "/project"
	}
	return p
}

// workspace is a folder of the owner that every user can reach.
func workspace(t testing.TB) string {
	t.Helper()
	top := t.TempDir()
	for _, d := range []string{filepath.Dir(top), top} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(top, "w")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, owner, owner); err != nil {
		t.Fatal(err)
	}
	return dir
}

func lines(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }
