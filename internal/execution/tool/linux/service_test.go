//go:build linux

package linux

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"

	"agentos/internal/execution/tool/catalog"
)

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>`

// privateBus starts a message bus of the test's own and returns its socket.
func privateBus(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "bus")
	write(t, dir+"/bus.conf", fmt.Sprintf(busConfig, socket))
	cmd := exec.Command("dbus-daemon", "--nofork", "--print-address", "--config-file="+dir+"/bus.conf")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it listens once it says where
		t.Fatal(err)
	}
	return socket
}

// manager is a systemd of the test's own: properties by "interface.Name".
type manager struct {
	props map[string]any
	mu    sync.Mutex
	asked []string
	block chan struct{} // if set, replies wait for it
}

func (m *manager) Get(iface, name string) (dbus.Variant, *dbus.Error) {
	m.mu.Lock()
	m.asked = append(m.asked, iface+"."+name)
	m.mu.Unlock()
	if m.block != nil {
		<-m.block
	}
	switch v := m.props[strings.TrimPrefix(iface, systemd+".")+"."+name].(type) {
	case nil:
		return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"no"})
	case *dbus.Error:
		return dbus.Variant{}, v
	default:
		return dbus.MakeVariant(v), nil
	}
}

// serve puts m on the bus under systemd's name, at the path of unit.
func serve(t *testing.T, socket, path string, m any) {
	t.Helper()
	conn, err := dbus.Connect("unix:path=" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.Export(m, dbus.ObjectPath(path), "org.freedesktop.DBus.Properties"); err != nil {
		t.Fatal(err)
	}
	if r, err := conn.RequestName(systemd, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("request name: %v, %v", r, err)
	}
}

// busHost is a host that has connected to socket, as confinement does.
func busHost(t *testing.T, socket string) Host {
	t.Helper()
	h := fixture(t.TempDir())
	h.Bus = socket
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	h.Conns = map[string]*net.UnixConn{socket: c}
	return h
}

func running() map[string]any {
	return map[string]any{
		"Unit.Id": "ssh.service", "Unit.Description": "OpenSSH \x1b[1mserver", "Unit.LoadState": "loaded", "Unit.ActiveState": "active",
		"Unit.SubState": "running", "Unit.UnitFileState": "enabled", "Unit.NeedDaemonReload": false,
		"Unit.ActiveEnterTimestamp": uint64(1_700_000_000_000_000), "Unit.InactiveEnterTimestamp": uint64(0),
		"Service.Result": "success", "Service.MainPID": uint32(812), "Service.NRestarts": uint32(2), "Service.ExecMainStatus": int32(0),
		"Service.ExecMainCode": int32(1), "Service.MemoryCurrent": uint64(5 << 20), "Service.TasksCurrent": ^uint64(0), "Service.CPUUsageNSec": uint64(1 << 54),
		"Service.Environment": []string{"SECRET=canary"},
	}
}

const sshPath = "/org/freedesktop/systemd1/unit/ssh_2eservice"

func TestServiceInspect(t *testing.T) {
	t.Parallel()
	socket := privateBus(t)
	m := &manager{props: running()}
	serve(t, socket, sshPath, m)
	var got serviceDoc
	if r := callTool(t, busHost(t, socket), catalog.ServiceInspect, `{"unit":"ssh.service"}`, &got); r.Status != "ok" {
		t.Fatalf("%+v", r)
	}
	u := func(v uint64) *uint64 { return &v }
	i := func(v int32) *int32 { return &v }
	no := false
	want := serviceDoc{
		Unit: "ssh.service", ID: "ssh.service", Description: "OpenSSH \ufffd[1mserver", LoadState: "loaded", ActiveState: "active",
		SubState: "running", UnitFileState: "enabled", Result: "success", MainPID: u(812), Restarts: u(2), ExecMainStatus: i(0), ExecMainCode: i(1),
		ActiveSince: "2023-11-14T22:13:20Z", MemoryCurrent: u(5 << 20), CPUUsage: u((1 << 54) / 1000), NeedDaemonReload: &no,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, p := range m.asked {
		if strings.Contains(p, "Environment") || strings.Contains(p, "Exec") && !strings.Contains(p, "ExecMain") {
			t.Errorf("asked for %s", p)
		}
	}
}

func TestServiceInspectHostile(t *testing.T) {
	t.Parallel()
	deny := dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"no"})
	for name, c := range map[string]struct {
		change    map[string]any
		status    string
		malformed []string
	}{
		"wrong types": {map[string]any{"Unit.SubState": uint32(1), "Service.MainPID": "812", "Unit.NeedDaemonReload": "yes", "Unit.ActiveEnterTimestamp": ^uint64(0), "Service.MemoryCurrent": uint64(1 << 60)},
			"ok", []string{"SubState", "ActiveEnterTimestamp", "NeedDaemonReload", "MainPID", "MemoryCurrent"}},
		"no states":     {map[string]any{"Unit.LoadState": nil}, "error", nil},
		"states typed":  {map[string]any{"Unit.ActiveState": []string{"active"}}, "error", nil},
		"long":          {map[string]any{"Unit.Description": strings.Repeat("\xc3\xbc", 40_000)}, "ok", nil},
		"too large":     {map[string]any{"Unit.Description": strings.Repeat("x", 2<<20)}, "unavailable", nil},
		"access denied": {map[string]any{"Unit.LoadState": deny}, "unavailable", nil},
		"no unit":       {map[string]any{"Unit.LoadState": dbus.NewError(systemd+".NoSuchUnit", []any{"no"})}, "error", nil},
		"template":      {map[string]any{"Unit.LoadState": dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", []any{"Unit name getty@.service is neither a valid invocation ID nor unit name."})}, "error", nil},
		"no object":     {map[string]any{"Unit.LoadState": dbus.NewError("org.freedesktop.DBus.Error.UnknownObject", []any{"no"})}, "error", nil},
		"odd error":     {map[string]any{"Service.Result": dbus.NewError("org.example.Odd", []any{"\x1b[1m"})}, "unavailable", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			props := running()
			for k, v := range c.change {
				props[k] = v
			}
			socket := privateBus(t)
			serve(t, socket, sshPath, &manager{props: props})
			var got serviceDoc
			r := callTool(t, busHost(t, socket), catalog.ServiceInspect, `{"unit":"ssh.service"}`, &got)
			if strings.Contains(r.Error, "find unit") != (name == "no unit" || name == "template" || name == "no object") {
				t.Errorf("%+v", r)
			}
			if r.Status != c.status || strings.ContainsRune(r.Error, '\x1b') {
				t.Errorf("%+v", r)
			}
			if diff := cmp.Diff(c.malformed, got.Malformed); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// odd answers Get with a body that isn't one variant.
type odd struct{}

func (odd) Get(iface, name string) (string, uint32, *dbus.Error) { return "loaded", 1, nil }

func TestServiceInspectOddBody(t *testing.T) {
	t.Parallel()
	socket := privateBus(t)
	serve(t, socket, sshPath, odd{})
	r := callTool(t, busHost(t, socket), catalog.ServiceInspect, `{"unit":"ssh.service"}`, nil)
	if r.Status != "error" || !strings.Contains(r.Error, "no load and active state") {
		t.Errorf("%+v", r)
	}
}

func TestServiceInspectUnavailable(t *testing.T) {
	t.Parallel()
	h := fixture(t.TempDir())
	if r := callTool(t, h, catalog.ServiceInspect, `{"unit":"ssh.service"}`, nil); r.Status != "unavailable" || !strings.Contains(r.Error, "no socket") {
		t.Errorf("no bus: %+v", r)
	}
	h = busHost(t, privateBus(t))
	if r := callTool(t, h, catalog.ServiceInspect, `{"unit":"ssh.service"}`, nil); r.Status != "unavailable" || !strings.Contains(r.Error, "not on the system bus") {
		t.Errorf("no systemd: %+v", r)
	}
}

// A peer that isn't a message bus, or stops talking, ends in a result in time and
// leaves no goroutine behind.
func TestServiceInspectBadPeer(t *testing.T) {
	for name, peer := range map[string]func(c net.Conn){
		"closes": func(c net.Conn) { c.Close() },
		"silent": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"garbage": func(c net.Conn) {
			_, _ = c.Write([]byte(strings.Repeat("\x00\xff garbage \r\n", 10_000)))
			_, _ = io.Copy(io.Discard, c)
		},
		"endless": func(c net.Conn) {
			for {
				if _, err := c.Write([]byte(strings.Repeat("x", 4096))); err != nil {
					return
				}
			}
		},
		"bad message": func(c net.Conn) {
			r := bufio.NewReader(c)
			for {
				l, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if strings.Contains(l, "AUTH EXTERNAL") {
					fmt.Fprint(c, "OK 0123456789abcdef0123456789abcdef\r\n")
				}
				if strings.HasPrefix(l, "BEGIN") {
					_, _ = c.Write([]byte("l\x02\x00\x01\xff\xff\xff\x07\x01\x00\x00\x00\xff\xff\xff\x03" + strings.Repeat("\x00", 4096)))
					_, _ = io.Copy(io.Discard, c)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := t.TempDir() + "/bus"
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					defer c.Close()
					peer(c)
				}
			}()
			h := busHost(t, socket)
			d := descriptor(t, catalog.ServiceInspect)
			d.Deadline = 300 * time.Millisecond
			r := Run(t.Context(), h, d, []byte(`{"unit":"ssh.service"}`))
			conforms(t, d.Name, r)
			if r.Status == "ok" {
				t.Errorf("%+v", r)
			}
			noGoroutine(t, "godbus")
		})
	}
}

// noGoroutine waits until no goroutine has name in its stack.
func noGoroutine(t *testing.T, name string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		buf := make([]byte, 1<<20)
		if stacks := string(buf[:runtime.Stack(buf, true)]); !strings.Contains(stacks, name) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("left behind:\n%s", stacks)
		}
		runtime.Gosched()
	}
}

func TestServiceInspectDeadline(t *testing.T) {
	t.Parallel()
	socket := privateBus(t)
	m := &manager{props: running(), block: make(chan struct{})}
	defer close(m.block)
	serve(t, socket, sshPath, m)
	d := descriptor(t, catalog.ServiceInspect)
	d.Deadline = 200 * time.Millisecond
	if r := Run(t.Context(), busHost(t, socket), d, []byte(`{"unit":"ssh.service"}`)); r.Status != "error" || !strings.Contains(r.Error, "deadline") {
		t.Errorf("%+v", r)
	}
}

func TestLabel(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ssh.service": "ssh_2eservice", "getty@tty1.service": "getty_40tty1_2eservice", "3x.mount": "_33x_2emount", `a\x2d.device`: "a_5cx2d_2edevice",
	} {
		if got := label(in); got != want {
			t.Errorf("label(%q) = %q, want %q", in, got, want)
		}
	}
}
