//go:build linux

package handover

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentos/internal/host/fdframe"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("AGENTOS_TEST_GIVE"); dir != "" {
		a, _, err := fdframe.Pair()
		if err != nil {
			os.Exit(2)
		}
		c, err := fdframe.Inherited(a)
		if err != nil {
			os.Exit(2)
		}
		if err := Give(dir, Offer{}, c); err != nil {
			_, _ = os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serve(t *testing.T, dir string, take func(context.Context, *net.UnixConn, Offer)) {
	t.Helper()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Serve(context.Background(), take) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, socketName)); !errors.Is(err, os.ErrNotExist) {
			t.Error("the socket stays")
		}
	})
}

func ends(t *testing.T) (client, given *net.UnixConn) {
	t.Helper()
	a, b, err := fdframe.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if client, err = fdframe.Inherited(a); err != nil {
		t.Fatal(err)
	}
	if given, err = fdframe.Inherited(b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); given.Close() })
	return client, given
}

// TestTheServerSpeaksWithTheClient: after Give the two are connected, also in a
// directory whose path is longer than a socket address.
func TestTheServerSpeaksWithTheClient(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, func(_ context.Context, c *net.UnixConn, o Offer) {
		defer c.Close()
		_, _ = c.Write([]byte("hello " + o.Dir))
	})
	client, given := ends(t)
	if err := Give(dir, Offer{Dir: "/here"}, given); err != nil {
		t.Fatal(err)
	}
	given.Close()
	b, err := io.ReadAll(client)
	if err != nil || string(b) != "hello /here" {
		t.Errorf("%q %v", b, err)
	}
}

func TestNobodyServes(t *testing.T) {
	dir := t.TempDir()
	_, given := ends(t)
	if err := Give(dir, Offer{}, given); !errors.Is(err, ErrNoServer) {
		t.Errorf("no socket: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := Give(dir, Offer{}, given); !errors.Is(err, ErrNoServer) {
		t.Errorf("dead socket: %v", err)
	}
	serve(t, dir, func(_ context.Context, c *net.UnixConn, _ Offer) { c.Close() }) // replaces the dead one
	if err := Give(dir, Offer{}, given); err != nil {
		t.Error(err)
	}
}

// TestAnotherUserIsRefused: even with the directory open to everybody, another
// user's process can't hand anything over.
func TestAnotherUserIsRefused(t *testing.T) {
	dir, err := os.MkdirTemp("", "handover")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	taken := make(chan struct{}, 1)
	serve(t, dir, func(_ context.Context, c *net.UnixConn, _ Offer) { c.Close(); taken <- struct{}{} })
	for _, p := range []struct {
		path string
		mode os.FileMode
	}{{dir, 0o755}, {filepath.Join(dir, socketName), 0o666}} {
		if err := os.Chmod(p.path, p.mode); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = []string{"AGENTOS_TEST_GIVE=" + dir}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4321, Gid: 4321}}
	out, err := cmd.Output()
	if err == nil || !strings.Contains(string(out), "4321") {
		t.Errorf("%q %v", out, err)
	}
	select {
	case <-taken:
		t.Error("taken")
	default:
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"args":["--set","a=b"],"env":["A=b"],"home":"/h","dir":"/d"}`))
	f.Add([]byte(`{"uid":0}`))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = Decode(b) })
}
