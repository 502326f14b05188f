//go:build linux

package backend

import (
	"context"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/internal/control/config"
	"agentos/internal/lib/fault"
)

func owner() uint32 { return uint32(os.Getuid()) }

func settings(b config.Backend) config.Config {
	var c config.Config
	c.Model.Backend, c.Model.Timeout, c.Agent.Limits.OutputTokens = b, time.Minute, 7
	return c
}

// serve listens on a socket that passes the checks and says hello to whoever
// connects.
func serve(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
}

func socket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.sock")
	serve(t, path)
	return path
}

func TestChoose(t *testing.T) {
	path := socket(t)
	script := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(script, []byte("the script"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		backend config.Backend
		socket  string
		want    string
		why     string
	}{
		"rules":                 {config.BackendRules, path, "rules", "configured"},
		"replay":                {config.BackendReplay, path, "replay", "configured"},
		"socket":                {config.BackendSocket, path, "socket", "configured"},
		"auto with a socket":    {config.BackendAuto, path, "socket", path},
		"auto without a socket": {config.BackendAuto, "", "rules", "no model socket is configured"},
	} {
		t.Run(name, func(t *testing.T) {
			c := settings(tc.backend)
			c.Model.Socket, c.Model.Replay = tc.socket, script
			got, err := Choose(c, owner())
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != tc.want || got.Model.Backend != tc.want || !strings.Contains(got.Why, tc.why) {
				t.Errorf("%+v", got)
			}
			if got.Model.MaxOutput != 7 || got.Model.Timeout != time.Minute || !got.Model.Local || got.Model.Metered != (tc.want != "rules") {
				t.Errorf("%+v", got.Model)
			}
			if (got.Connect != nil) != (tc.want == "socket") || (got.Script != nil) != (tc.want == "replay") {
				t.Errorf("connect %v, script %v", got.Connect != nil, got.Script != nil)
			}
			if got.Connect != nil {
				if s := hello(t, got); s != "hello" {
					t.Errorf("server said %q", s)
				}
			}
			if got.Script != nil {
				f, err := got.Script()
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if b, _ := io.ReadAll(f); string(b) != "the script" {
					t.Errorf("script %q", b)
				}
			}
		})
	}
}

func hello(t *testing.T, ch Choice) string {
	t.Helper()
	f, err := ch.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, _ := io.ReadAll(c)
	return string(b)
}

// TestNoSilentFallback: a configured model that can't be had is an error of the
// start, also by auto, and never another model.
func TestNoSilentFallback(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, path string)
		owner uint32
	}{
		"writable for all": {func(t *testing.T, p string) { must(t, os.Chmod(p, 0o666)) }, owner()},
		"folder writable":  {func(t *testing.T, p string) { must(t, os.Chmod(filepath.Dir(p), 0o777)) }, owner()},
		"of a stranger":    {func(t *testing.T, p string) { must(t, os.Chown(p, 61002, 61002)) }, owner()},
		"gone":             {func(t *testing.T, p string) { must(t, os.Remove(p)) }, owner()},
		"a file":           {func(t *testing.T, p string) { must(t, os.Remove(p)); must(t, os.WriteFile(p, nil, 0o600)) }, owner()},
		"a link": {func(t *testing.T, p string) {
			must(t, os.Rename(p, p+".real"))
			must(t, os.Symlink(p+".real", p))
		}, owner()},
	} {
		for _, b := range []config.Backend{config.BackendSocket, config.BackendAuto} {
			t.Run(name+" "+string(b), func(t *testing.T) {
				c := settings(b)
				c.Model.Socket = socket(t)
				before, err := Choose(c, tc.owner)
				if err != nil {
					t.Fatal(err)
				}
				tc.spoil(t, c.Model.Socket)
				if got, err := Choose(c, tc.owner); err == nil || fault.KindOf(err) == fault.Internal || fault.NextOf(err) == "" {
					t.Errorf("took %q, %v", got.Name, err)
				}
				// OSA-13: looked at for every connection, not only at the start.
				if f, err := before.Connect(t.Context()); err == nil {
					_ = f.Close()
					t.Error("connected to what is not the checked socket any more")
				}
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestServerComesBack: a server that is started again is found again.
func TestServerComesBack(t *testing.T) {
	c := settings(config.BackendSocket)
	c.Model.Socket = socket(t)
	ch, err := Choose(c, owner())
	if err != nil {
		t.Fatal(err)
	}
	must(t, os.Remove(c.Model.Socket))
	if f, err := ch.Connect(t.Context()); err == nil {
		_ = f.Close()
		t.Error("connected to nothing")
	}
	serve(t, c.Model.Socket)
	if s := hello(t, ch); s != "hello" {
		t.Errorf("server said %q", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := ch.Connect(ctx); err == nil {
		_ = f.Close()
		t.Error("connected for a caller that gave up")
	}
}

func TestGroup(t *testing.T) {
	path := socket(t)
	st, err := os.Stat(path)
	must(t, err)
	gid := st.Sys().(*syscall.Stat_t).Gid
	g, err := user.LookupGroupId(strconv.FormatUint(uint64(gid), 10))
	must(t, err)
	for group, ok := range map[string]bool{"": true, g.Gid: true, g.Name: true, strconv.FormatUint(uint64(gid)+1, 10): false, "no-such-group-here": false, "-1": false} {
		c := settings(config.BackendSocket)
		c.Model.Socket, c.Model.SocketGroup = path, group
		got, err := Choose(c, owner())
		if (err == nil) != ok || !ok && (got.Connect != nil || fault.NextOf(err) == "") {
			t.Errorf("group %q: %v", group, err)
		}
		if p, err := Policy(c, owner()); err == nil && (p.Owner != owner() || (p.Group != nil) != (group != "")) {
			t.Errorf("group %q: %+v", group, p)
		}
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for name, tc := range map[string]struct {
		backend config.Backend
		replay  string
	}{
		"unknown":   {"cloud", ""},
		"none":      {"", ""},
		"no script": {config.BackendReplay, filepath.Join(dir, "gone")},
		"a folder":  {config.BackendReplay, dir},
		"a pipe":    {config.BackendReplay, fifo}, // and nobody waits for its writer
	} {
		c := settings(tc.backend)
		c.Model.Replay = tc.replay
		if got, err := Choose(c, owner()); fault.KindOf(err) != fault.Usage || fault.NextOf(err) == "" || got.Name != "" {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
