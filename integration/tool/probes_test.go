//go:build linux

package tool

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentos/internal/execution/tool/catalog"
)

// scene is a machine with things that a tool must not reach, all of which an
// unconfined process of the same user can.
type scene struct {
	forbidden []probe // work without confinement
	always    []probe // file permissions forbid these too
	orders    map[string]order
}

func newScene(t *testing.T) scene {
	t.Helper()
	dir := openDir(t)
	home := filepath.Join(dir, "home", "alice")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(home, "notes.txt")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	drop := filepath.Join(dir, "drop")
	if err := os.Mkdir(drop, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(drop, 0o777); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // a peer that hangs up, until the cleanup
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	// A process of the tool's own user: file permissions alone protect nothing of it.
	peer := peerProcess(t)
	return scene{
		forbidden: []probe{
			{"read", secret}, {"list", home}, {"read", "/etc/passwd"}, {"read", "/etc/hostname"}, {"list", "/etc"}, {"list", "/"}, {"list", "/dev"},
			{"read", fmt.Sprintf("/proc/%d/environ", peer)}, {"read", "/dev/zero"},
			{"write", drop + "/x"}, {"exec", "/bin/bash"}, {"exec", "/usr/bin/env"}, {"loader", "/usr/bin/env"},
			{"socket", "inet"}, {"socket", "inet6"}, {"socket", "unix"}, {"socket", "netlink"}, {"dial", socket}, {"unshare", ""}, {"signal", fmt.Sprint(peer)},
		},
		always: []probe{{"read", "/etc/shadow"}, {"list", "/root"}, {"read", "/proc/1/environ"}},
		orders: map[string]order{
			catalog.SystemInspect:  {Args: `{}`},
			catalog.NPUInspect:     {Args: `{}`},
			catalog.PackageQuery:   {Args: `{"name":"agentos-probe"}`, RPMDB: rpmDatabase(t)},
			catalog.ServiceInspect: {Args: `{"unit":"ssh.service"}`, Bus: socket},
			catalog.JournalRead:    {Args: `{"unit":"a.service"}`, JournalDir: journal(t)},
		},
	}
}

func peerProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/bin/cat")
	cmd.Env = []string{"CANARY=1"}
	cmd.SysProcAttr = asUser()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func rpmDatabase(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	spec := dir + "/p.spec"
	content := "Name: agentos-probe\nVersion: 1.2\nRelease: 3\nSummary: probe\nLicense: none\nBuildArch: noarch\n%description\nx\n%files\n"
	if err := os.WriteFile(spec, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "rpmbuild", "-bb", "--define", "_topdir "+dir+"/build", spec)
	must(t, "rpm", "--dbpath", dir+"/db", "--initdb")
	must(t, "rpm", "--dbpath", dir+"/db", "--install", "--justdb", "--nodeps", dir+"/build/RPMS/noarch/agentos-probe-1.2-3.noarch.rpm")
	return dir + "/db"
}

func journal(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	entry := "__REALTIME_TIMESTAMP=1700000000000000\n__MONOTONIC_TIMESTAMP=1\n_BOOT_ID=0123456789abcdef0123456789abcdef\n" +
		"_SYSTEMD_UNIT=a.service\nMESSAGE=hello\n\n"
	cmd := exec.Command("/lib/systemd/systemd-journal-remote", "--output="+dir+"/fixture.journal", "-")
	cmd.Stdin = strings.NewReader(entry)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make journal: %v: %s", err, out)
	}
	if err := os.Chmod(dir+"/fixture.journal", 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// works is what a good result of each tool holds, confined or not.
func works(name string, r report) bool {
	if name == catalog.ServiceInspect { // the peer in this scene is no bus: reached, and of no use
		return r.Result.Status == "error" || r.Result.Status == "unavailable"
	}
	want := map[string]string{
		catalog.SystemInspect: `"release"`, catalog.NPUInspect: `"count"`, catalog.PackageQuery: `"version":"1.2-3"`, catalog.JournalRead: `"message":"hello"`,
	}[name]
	return r.Result.Status == "ok" && bytes.Contains(r.Result.Data, []byte(want)) && !bytes.Contains(r.Result.Data, []byte("unavailable"))
}

// TestConfinement runs each tool in a child that confines itself as the tool's
// process does: the tool works, and nothing else can be reached. The same child
// without confinement reaches everything, so each refusal is the confinement's.
func TestConfinement(t *testing.T) {
	s := newScene(t)
	for name, o := range s.orders {
		t.Run(name, func(t *testing.T) {
			o.Tool = name
			o.Probes = slices.Concat(s.forbidden, s.always)
			r := run(t, with(o, true))
			if r.Fault != "" || !works(name, r) {
				t.Fatalf("confined tool: %s %+v", r.Fault, r.Result)
			}
			for _, p := range o.Probes {
				if r.Probes[p.Op+" "+p.Path] == "" {
					t.Errorf("confined: %s %s worked", p.Op, p.Path)
				}
			}
			for _, p := range r.Need.Read {
				if _, err := os.Stat(p); err != nil {
					continue
				}
				for _, f := range []string{"/etc/passwd", "/etc/shadow", "/home", "/root"} {
					if p == "/" || f == p || strings.HasPrefix(f, p+"/") {
						t.Errorf("plan reads %s, which holds %s", p, f)
					}
				}
			}
		})
	}
}

// TestConfinementAllows: what the plan lists can be read and executed.
func TestConfinementAllows(t *testing.T) {
	s := newScene(t)
	for name, o := range s.orders {
		o.Tool = name
		plan := run(t, with(o, false)).Need
		for _, p := range plan.Read {
			if st, err := os.Stat(p); err != nil {
				continue
			} else if st.IsDir() {
				o.Probes = append(o.Probes, probe{"list", p})
			} else if st.Mode().Perm()&0o004 != 0 {
				o.Probes = append(o.Probes, probe{"read", p})
			}
		}
		if len(plan.Exec) > 0 {
			o.Probes = append(o.Probes, probe{"exec", plan.Exec[0]})
		}
		if plan.Procs {
			o.Probes = append(o.Probes, probe{"list", "/proc"}, probe{"read", "/proc/1/stat"})
		}
		r := run(t, with(o, true))
		for _, p := range slices.Sorted(maps.Keys(r.Probes)) {
			if r.Probes[p] != "" {
				t.Errorf("%s: %s: %s", name, p, r.Probes[p])
			}
		}
	}
}

// Each section of system_inspect works with the right on its own source alone.
func TestSectionsConfined(t *testing.T) {
	for _, section := range []string{"kernel", "uptime", "load", "pressure", "memory", "filesystems", "os", "processes"} {
		o := order{Tool: catalog.SystemInspect, Args: `{"sections":["` + section + `"]}`, Confine: true, Probes: []probe{{"read", "/proc/1/stat"}}}
		r := run(t, o)
		if r.Result.Status != "ok" || bytes.Contains(r.Result.Data, []byte("unavailable")) {
			t.Errorf("%s: %s %s", section, r.Fault, r.Result.Data)
		}
		if (r.Probes["read /proc/1/stat"] == "") != (section == "processes") {
			t.Errorf("%s: read of another process: %q", section, r.Probes["read /proc/1/stat"])
		}
	}
}

// TestProbesWork is the control: without confinement every forbidden thing works.
func TestProbesWork(t *testing.T) {
	s := newScene(t)
	o := s.orders[catalog.SystemInspect]
	o.Tool, o.Probes = catalog.SystemInspect, s.forbidden
	r := run(t, with(o, false))
	for _, p := range slices.Sorted(maps.Keys(r.Probes)) {
		if r.Probes[p] != "" {
			t.Errorf("%s: %s", p, r.Probes[p])
		}
	}
}

func with(o order, confined bool) order {
	o.Confine = confined
	return o
}
