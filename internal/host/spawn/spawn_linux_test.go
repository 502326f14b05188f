package spawn

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// Children run the test binary itself, started by Start: argv[1] names the part.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[0] == "child" {
		os.Exit(child(os.Args[1:]))
	}
	os.Exit(m.Run())
}

type facts struct {
	UID, EUID, GID, EGID int
	Groups               []int
	Env                  []string
	Dir                  string
	Session, Group       bool // leader of its own
}

func child(args []string) int {
	switch args[0] {
	case "facts":
		groups, err := os.Getgroups()
		if err != nil {
			return 2
		}
		dir, err := os.Getwd()
		if err != nil {
			return 2
		}
		sid, _ := unix.Getsid(0)
		err = json.NewEncoder(os.Stdout).Encode(facts{
			UID: os.Getuid(), EUID: os.Geteuid(), GID: os.Getgid(), EGID: os.Getegid(),
			Groups: groups, Env: os.Environ(), Dir: dir,
			Session: sid == os.Getpid(), Group: unix.Getpgrp() == os.Getpid(),
		})
		if err != nil {
			return 2
		}
	case "exit":
		code, _ := strconv.Atoi(args[1])
		return code
	case "echo": // descriptor 3
		c, err := net.FileConn(os.NewFile(3, "three"))
		if err != nil {
			return 2
		}
		if _, err := io.Copy(c, c); err != nil {
			return 2
		}
	case "block": // says so, and waits for ever
		fmt.Println("ready")
		<-time.After(time.Hour) // a bare select would be a deadlock to the runtime
	case "family": // a grandchild in the same group
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			return 2
		}
		fmt.Println(cmd.Process.Pid)
		if args[1] == "leave" {
			return 0
		}
		<-time.After(time.Hour) // a bare select would be a deadlock to the runtime
	case "parent": // starts a child by Start, tells its pid, and blocks
		self, err := OpenBinary("/proc/self/exe")
		if err != nil {
			return 2
		}
		p, err := Start(context.Background(), Spec{Binary: self, Argv: []string{"child", "block"}})
		if err != nil {
			return 2
		}
		fmt.Println(p.PID())
		<-time.After(time.Hour) // a bare select would be a deadlock to the runtime
	}
	return 0
}

func binary(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := OpenBinary(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func start(t *testing.T, s Spec) *Process {
	t.Helper()
	p, err := Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); <-p.Done() })
	return p
}

func output(t *testing.T, s Spec) (string, Exit) {
	t.Helper()
	r, w := pipe(t)
	s.Stdout = w
	p := start(t, s)
	_ = w.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(b), e
}

func getFacts(t *testing.T, s Spec) facts {
	t.Helper()
	s.Argv = []string{"child", "facts"}
	out, e := output(t, s)
	var f facts
	if err := json.Unmarshal([]byte(out), &f); err != nil || e.Code != 0 {
		t.Fatalf("child printed %q, exit %+v: %v", out, e, err)
	}
	return f
}

// Spec: OSA-02. Exactly the listed descriptors arrive, in order, though this
// process holds others, also one that it inherited without close-on-exec.
func TestDescriptors(t *testing.T) {
	_, w := pipe(t)
	leak, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD, 50) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(leak) }()
	high, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 200)
	if err != nil {
		t.Fatal(err)
	}
	hf := os.NewFile(uintptr(high), "high")
	defer func() { _ = hf.Close() }()
	for _, n := range []int{0, 1, 2, 9, 60} {
		var files []*os.File
		want := []string{"0", "1", "2"}
		for i := range n {
			files = append(files, []*os.File{w, hf}[i%2])
			want = append(want, strconv.Itoa(3+i))
		}
		want = append(want, strconv.Itoa(3+n)) // the directory that ls reads
		out, e := output(t, Spec{Binary: binary(t, "/bin/ls"), Argv: []string{"ls", "-v", "/proc/self/fd"}, Files: files})
		if diff := cmp.Diff(want, strings.Fields(out)); diff != "" || e.Code != 0 {
			t.Errorf("%d files: exit %+v, descriptors (-want +got):\n%s", n, e, diff)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Setenv("CANARY", "must not arrive")
	self := binary(t, "/proc/self/exe")
	got := getFacts(t, Spec{Binary: self, UID: 54321, GID: 54322, Groups: []uint32{54323}})
	want := facts{UID: 54321, EUID: 54321, GID: 54322, EGID: 54322, Groups: []int{54323}, Dir: "/", Session: true, Group: true}
	if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(s []string) int { return len(s) })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if g := getFacts(t, Spec{Binary: self, UID: 54321, GID: 54322}).Groups; len(g) != 0 {
		t.Errorf("groups %v, want none", g)
	}
	keep := getFacts(t, Spec{Binary: self, Dir: "/usr", Env: []string{"A=b"}})
	if keep.UID != os.Getuid() || keep.Dir != "/usr" || !cmp.Equal(keep.Env, []string{"A=b"}) {
		t.Errorf("kept identity: %+v", keep)
	}
}

// A binary under a folder that only its owner may search runs under another
// user, and the bytes that run are those that were opened.
func TestPrivatePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bin")
	copyFile(t, "/proc/self/exe", path)
	f := binary(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "/bin/false", path)
	if got := getFacts(t, Spec{Binary: f, UID: 54321, GID: 54321}); got.UID != 54321 {
		t.Errorf("uid %d", got.UID)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, uid int) string {
		path := filepath.Join(dir, name)
		copyFile(t, "/bin/true", path)
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, path := range map[string]string{
		"group may write":  file("g", 0o775, 0),
		"others may write": file("o", 0o757, 0),
		"foreign owner":    file("f", 0o755, 54321),
		"setuid":           file("s", 0o755|os.ModeSetuid, 0),
		"not executable":   file("x", 0o644, 0),
		"directory":        dir,
		"device":           "/dev/null",
	} {
		if f, err := OpenBinary(path); fault.KindOf(err) != fault.Denied {
			t.Errorf("%s: %v, want denied", name, err)
			_ = f.Close()
		}
	}
	if _, err := OpenBinary(filepath.Join(dir, "absent")); fault.KindOf(err) != fault.NotFound {
		t.Errorf("absent: %v", err)
	}
	ok := binary(t, file("ok", 0o755, 0))
	for name, s := range map[string]Spec{
		"no binary":       {Argv: []string{"x"}},
		"no argv":         {Binary: ok},
		"uid without gid": {Binary: ok, Argv: []string{"x"}, UID: 5},
		"gid without uid": {Binary: ok, Argv: []string{"x"}, GID: 5},
		"group 0":         {Binary: ok, Argv: []string{"x"}, UID: 5, GID: 5, Groups: []uint32{0}},
		"groups alone":    {Binary: ok, Argv: []string{"x"}, Groups: []uint32{5}},
	} {
		if p, err := Start(t.Context(), s); err == nil {
			_ = p.Kill()
			t.Errorf("%s: started", name)
		}
	}
	if err := os.Chmod(ok.Name(), 0o777); err != nil { // after it was opened
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Spec{Binary: ok, Argv: []string{"x"}}); fault.KindOf(err) != fault.Denied {
		t.Errorf("mode changed after open: %v", err)
	}
}

func TestExit(t *testing.T) {
	self := binary(t, "/proc/self/exe")
	for _, code := range []int{0, 1, 21, 130} {
		_, e := output(t, Spec{Binary: self, Argv: []string{"child", "exit", strconv.Itoa(code)}})
		if e.Code != code || e.Signal != 0 || e.MaxRSS <= 0 {
			t.Errorf("exit %d: %+v", code, e)
		}
	}
	p := start(t, Spec{Binary: self, Argv: []string{"child", "block"}})
	if err := p.Terminate(); err != nil {
		t.Fatal(err)
	}
	if e, err := p.Wait(t.Context()); err != nil || e.Signal != syscall.SIGTERM {
		t.Errorf("terminated: %+v, %v", e, err)
	}
	for _, f := range []func() error{p.Kill, p.Terminate} {
		if err := f(); err != nil {
			t.Errorf("after the end: %v", err)
		}
	}
}

func TestFilesTalk(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	mine := os.NewFile(uintptr(fds[0]), "ours")
	c, err := net.FileConn(mine)
	_ = mine.Close()
	if err != nil {
		t.Fatal(err)
	}
	ours, ok := c.(*net.UnixConn)
	if !ok {
		t.Fatal("not a unix connection")
	}
	p := start(t, Spec{Binary: binary(t, "/proc/self/exe"), Argv: []string{"child", "echo"}, Files: []*os.File{theirs}})
	_ = theirs.Close()
	if _, err := ours.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := ours.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(ours)
	if err != nil || string(b) != "hello" {
		t.Errorf("got %q, %v", b, err)
	}
	_ = ours.Close()
	if e, err := p.Wait(t.Context()); err != nil || e.Code != 0 {
		t.Errorf("%+v, %v", e, err)
	}
}
