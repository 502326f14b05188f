//go:build linux

package tool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"

	"agentos/internal/execution/tool/catalog"
)

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>`

// fakeSystemd answers property reads of one unit.
type fakeSystemd struct{}

func (fakeSystemd) Get(_, name string) (dbus.Variant, *dbus.Error) {
	v, ok := map[string]string{"LoadState": "loaded", "ActiveState": "active", "Result": "success"}[name]
	if !ok {
		return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"no"})
	}
	return dbus.MakeVariant(v), nil
}

func busWithSystemd(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	socket := dir + "/bus"
	if err := os.WriteFile(dir+"/bus.conf", fmt.Appendf(nil, busConfig, socket), 0o644); err != nil {
		t.Fatal(err)
	}
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
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	conn, err := dbus.Connect("unix:path="+socket, dbus.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.Export(fakeSystemd{}, "/org/freedesktop/systemd1/unit/ssh_2eservice", "org.freedesktop.DBus.Properties"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName("org.freedesktop.systemd1", dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return socket
}

// Over a connection made before confinement, a process that can open no socket
// still asks the bus. dbus-daemon hangs up on a user without an account: the
// result says so.
func TestServiceInspectConfined(t *testing.T) {
	o := order{Tool: catalog.ServiceInspect, Args: `{"unit":"ssh.service"}`, Bus: busWithSystemd(t), Confine: true,
		Probes: []probe{{"socket", "unix"}}}
	r := run(t, o)
	if r.Result.Status != "unavailable" || !strings.Contains(r.Result.Next, "account") {
		t.Errorf("without an account: %s %+v", r.Fault, r.Result)
	}
	const nobody = 65534
	r = runAs(t, &syscall.Credential{Uid: nobody, Gid: nobody}, o)
	if r.Result.Status != "ok" || !bytes.Contains(r.Result.Data, []byte(`"active_state":"active"`)) {
		t.Errorf("%s %+v", r.Fault, r.Result)
	}
	if r.Probes["socket unix"] == "" {
		t.Error("a socket could be opened")
	}
}

// A journal that only systemd-journal may read: the descriptor names the group,
// with it the tool works, without it the result says what is missing.
func TestJournalGroup(t *testing.T) {
	dir := journal(t)
	d, _ := catalog.Lookup(catalog.JournalRead)
	if len(d.Groups) != 1 {
		t.Fatalf("groups %v", d.Groups)
	}
	g, err := user.LookupGroup(d.Groups[0])
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	file := dir + "/fixture.journal"
	if err := os.Chown(file, 0, int(id)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	o := order{Tool: catalog.JournalRead, Args: `{"unit":"a.service"}`, JournalDir: dir, Confine: true}
	r := run(t, o)
	if r.Result.Status != "unavailable" || !strings.Contains(r.Result.Next, "systemd-journal") {
		t.Errorf("without the group: %s %+v", r.Fault, r)
	}
	r = runAs(t, &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{uint32(id)}}, o)
	if r.Result.Status != "ok" || !bytes.Contains(r.Result.Data, []byte("hello")) {
		b, _ := json.Marshal(r)
		t.Errorf("with the group: %s", b)
	}
}
