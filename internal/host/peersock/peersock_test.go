//go:build linux

package peersock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/internal/lib/fault"
)

const (
	owner    = 61001
	stranger = 61002
	group    = 61003
)

// The test binary is also its own children: one that listens, one that dials.
func TestMain(m *testing.M) {
	switch os.Getenv("PEERSOCK_CHILD") {
	case "":
		os.Exit(m.Run())
	case "listen":
		os.Exit(childListen(os.Getenv("PEERSOCK_PATH")))
	case "dial":
		os.Exit(childDial(os.Getenv("PEERSOCK_PATH")))
	}
}

func childListen(path string) int {
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
	_ = l.Close()
	return 0
}

func childDial(path string) int {
	v, err := Verify(path, Policy{Owner: owner})
	if err == nil {
		var c net.Conn
		if c, err = v.Dial(context.Background()); err == nil {
			_ = c.Close()
		}
	}
	fmt.Println(fault.KindOf(err), err)
	return 0
}

func child(t *testing.T, uid uint32, mode, path string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{"PEERSOCK_CHILD=" + mode, "PEERSOCK_PATH=" + path}
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	return c
}

// listenAs has another user listen on path.
func listenAs(t *testing.T, uid uint32, path string) {
	t.Helper()
	c := child(t, uid, "listen", path)
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
}

// folder is one that other users can reach: TempDir's parent is private.
func folder(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("needs root: it makes files of other users")
	}
	d := t.TempDir()
	must(t, os.Chmod(filepath.Dir(d), 0o755), os.Chmod(d, 0o755))
	return d
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	must(t, os.Chown(path, owner, owner), os.Chmod(path, 0o600))
	return l
}

func TestVerify(t *testing.T) {
	t.Parallel()
	g, other := uint32(group), uint32(group+1)
	tests := map[string]struct {
		spoil func(dir, sock string) error // dir/in/m.sock belongs to owner
		want  Policy
		path  func(dir string) string
		kind  fault.Kind
		next  string
	}{
		"fine":                {},
		"root's":              {spoil: func(_, s string) error { return os.Chown(s, 0, 0) }},
		"group of the policy": {spoil: func(_, s string) error { return errors.Join(os.Chown(s, owner, group), os.Chmod(s, 0o660)) }, want: Policy{Group: &g}},
		"other group":         {spoil: func(_, s string) error { return os.Chown(s, owner, group) }, want: Policy{Group: &other}, kind: fault.Denied, next: "chgrp 61004 "},
		"stranger's socket":   {spoil: func(_, s string) error { return os.Chown(s, stranger, 0) }, kind: fault.Denied, next: "chown 61001 "},
		"anybody's socket":    {spoil: func(_, s string) error { return os.Chmod(s, 0o666) }, kind: fault.Denied, next: "chmod o-w "},
		"stranger's folder":   {spoil: func(d, _ string) error { return os.Chown(d+"/in", stranger, 0) }, kind: fault.Denied, next: "chown 61001 "},
		"anybody's folder":    {spoil: func(d, _ string) error { return os.Chmod(d+"/in", 0o777) }, kind: fault.Denied, next: "chmod o-w "},
		"sticky folder":       {spoil: func(d, _ string) error { return os.Chmod(d+"/in", 0o777|os.ModeSticky) }},
		"sticky folder of stranger": {spoil: func(d, _ string) error {
			return errors.Join(os.Chmod(d+"/in", 0o777|os.ModeSticky), os.Chown(d+"/in", stranger, 0))
		}, kind: fault.Denied},
		"stranger's in a sticky folder": {spoil: func(d, s string) error {
			return errors.Join(os.Chmod(d+"/in", 0o777|os.ModeSticky), os.Chown(s, stranger, 0))
		}, kind: fault.Denied},
		"group's folder": {spoil: func(d, _ string) error { return errors.Join(os.Chown(d+"/in", owner, group), os.Chmod(d+"/in", 0o770)) }, kind: fault.Denied, next: "chmod g-w "},
		"folder of the policy's group": {spoil: func(d, s string) error {
			return errors.Join(os.Chown(d+"/in", owner, group), os.Chmod(d+"/in", 0o770), os.Chown(s, owner, group))
		}, want: Policy{Group: &g}},
		"folder of root's group":       {spoil: func(d, _ string) error { return errors.Join(os.Chown(d+"/in", owner, 0), os.Chmod(d+"/in", 0o770)) }},
		"stranger's folder further up": {spoil: func(d, _ string) error { return os.Chown(d, stranger, 0) }, kind: fault.Denied},
		"link to the socket":           {spoil: func(d, s string) error { return os.Symlink(s, d+"/in/link") }, path: func(d string) string { return d + "/in/link" }, kind: fault.Denied, next: "realpath"},
		"link to the folder":           {spoil: func(d, _ string) error { return os.Symlink(d+"/in", d+"/link") }, path: func(d string) string { return d + "/link/m.sock" }, kind: fault.Denied, next: "realpath"},
		"magic link":                   {path: func(d string) string { return "/proc/self/root" + d + "/in/m.sock" }, kind: fault.Denied, next: "realpath"},
		"no socket":                    {spoil: func(d, _ string) error { return os.WriteFile(d+"/in/f", nil, 0o600) }, path: func(d string) string { return d + "/in/f" }, kind: fault.Denied},
		"folder":                       {path: func(d string) string { return d + "/in" }, kind: fault.Denied},
		"below the socket":             {path: func(d string) string { return d + "/in/m.sock/x" }, kind: fault.Denied},
		"absent":                       {path: func(d string) string { return d + "/in/n.sock" }, kind: fault.NotFound, next: "start the server"},
		"relative":                     {path: func(string) string { return "in/m.sock" }, kind: fault.Usage},
		"dots":                         {path: func(d string) string { return d + "/in/../in/m.sock" }, kind: fault.Usage},
		"slashes":                      {path: func(d string) string { return d + "//in/m.sock" }, kind: fault.Usage},
		"empty":                        {path: func(string) string { return "" }, kind: fault.Usage},
		"NUL":                          {path: func(d string) string { return d + "/in/m.sock\x00" }, kind: fault.Usage},
		"abstract":                     {path: func(string) string { return "@name" }, kind: fault.Usage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			sock := dir + "/in/m.sock"
			must(t, os.Mkdir(dir+"/in", 0o755), os.Chown(dir+"/in", owner, owner))
			l := listen(t, sock)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_ = c.Close()
				}
			}()
			if tt.spoil != nil {
				must(t, tt.spoil(dir, sock))
			}
			tt.want.Owner = owner
			path := sock
			if tt.path != nil {
				path = tt.path(dir)
			}
			v, err := Verify(path, tt.want)
			if fault.KindOf(err) != tt.kind {
				t.Fatalf("error %v, want kind %q", err, tt.kind)
			}
			if err != nil {
				if next := fault.NextOf(err); next == "" || !strings.Contains(next, tt.next) {
					t.Errorf("next step %q, want %q", next, tt.next)
				}
				return
			}
			c, err := v.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		})
	}
}

// What is verified is verified again at each connection.
func TestDialVerifiesAgain(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	sock := dir + "/m.sock"
	l := listen(t, sock)
	v, err := Verify(sock, Policy{Owner: owner})
	must(t, err)
	if v.UID != owner || v.GID != owner || v.Mode != 0o600 || v.path != sock {
		t.Errorf("found %+v", v)
	}
	dial := func() error {
		c, err := v.Dial(t.Context())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	must(t, dial())
	must(t, os.Chmod(sock, 0o666))
	if err := dial(); fault.KindOf(err) != fault.Denied {
		t.Errorf("opened to anybody: %v", err)
	}
	must(t, os.Remove(sock), os.Symlink("/other", sock))
	if err := dial(); fault.KindOf(err) != fault.Denied {
		t.Errorf("replaced by a link: %v", err)
	}
	must(t, os.Remove(sock), l.Close())
	if err := dial(); fault.KindOf(err) != fault.NotFound {
		t.Errorf("removed: %v", err)
	}
	stale := listen(t, sock)
	must(t, stale.Close())
	if err := dial(); fault.KindOf(err) != fault.Unavailable || fault.NextOf(err) == "" {
		t.Errorf("stale: %v", err)
	}
	must(t, os.Remove(sock))
	listen(t, sock)
	must(t, dial()) // the restarted server
}

// The descriptor holds the inode: when the name leads elsewhere by the time of
// the connection, the verified socket is still the one that is reached.
func TestConnectsToTheVerifiedInode(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	sock := dir + "/m.sock"
	right := listen(t, sock)
	fd, _, err := open(sock, Policy{Owner: owner})
	must(t, err)
	defer syscall.Close(fd)
	must(t, os.Rename(sock, dir+"/moved"))
	wrong := listen(t, sock)
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	must(t, err)
	defer c.Close()
	accepted := make(chan string, 2)
	for name, l := range map[string]net.Listener{"right": right, "wrong": wrong} {
		go func() {
			if c, err := l.Accept(); err == nil {
				accepted <- name
				_ = c.Close()
			}
		}()
	}
	if got := <-accepted; got != "right" {
		t.Errorf("connected to the %s socket", got)
	}
}

func TestPeer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		uid  uint32
		want Policy
		kind fault.Kind
	}{
		"owner":    {owner, Policy{}, ""},
		"root":     {0, Policy{}, ""},
		"stranger": {stranger, Policy{}, fault.Denied},
		"expected": {stranger, Policy{Peers: []uint32{stranger}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			must(t, os.Chown(dir, int(tt.uid), 0))
			sock := dir + "/m.sock"
			listenAs(t, tt.uid, sock)
			// The file's owner is right, the process behind it may not be.
			must(t, os.Chown(dir, owner, owner), os.Chown(sock, owner, owner), os.Chmod(sock, 0o600))
			tt.want.Owner = owner
			v, err := Verify(sock, tt.want)
			must(t, err)
			c, err := v.Dial(t.Context())
			if fault.KindOf(err) != tt.kind {
				t.Errorf("error %v, want kind %q", err, tt.kind)
			}
			if err == nil {
				_ = c.Close()
			}
		})
	}
}

// An ordinary user who owns the socket can do all of it; another one can't.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	sock := dir + "/m.sock"
	listen(t, sock)
	for uid, want := range map[uint32]string{owner: " <nil>", stranger: "denied connect to socket"} {
		out, err := child(t, uid, "dial", sock).Output()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("uid %d: %q, %v; want %q", uid, out, err, want)
		}
	}
}

// A path longer than sun_path works, and a listener that never accepts does not
// hold the caller.
func TestLongPathAndFullQueue(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	long := dir + "/" + strings.Repeat("d", 120)
	must(t, os.Mkdir(long, 0o755))
	listen(t, dir+"/m.sock")
	must(t, os.Rename(dir+"/m.sock", long+"/m.sock"))
	v, err := Verify(long+"/m.sock", Policy{Owner: owner})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c, err := v.Dial(ctx)
	must(t, err)
	_ = c.Close()

	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	defer syscall.Close(fd)
	full := dir + "/full.sock"
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: full}), syscall.Listen(fd, 0), os.Chmod(full, 0o600))
	v, err = Verify(full, Policy{Owner: owner})
	must(t, err)
	for range 4 {
		c, err := v.Dial(ctx)
		if err != nil {
			if k := fault.KindOf(err); k != fault.Unavailable {
				t.Errorf("full queue: %v", err)
			}
			return
		}
		defer c.Close()
	}
	t.Error("the queue never filled")
}

func TestDatagramSocket(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c, err := net.ListenPacket("unixgram", dir+"/m.sock")
	must(t, err)
	defer c.Close()
	must(t, os.Chmod(dir+"/m.sock", 0o600))
	v, err := Verify(dir+"/m.sock", Policy{Owner: owner})
	must(t, err)
	if _, err := v.Dial(t.Context()); fault.KindOf(err) != fault.Denied {
		t.Errorf("%v", err)
	}
}
