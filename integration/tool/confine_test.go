//go:build linux

package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"agentos/internal/execution/tool"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/execution/tool/linux"
	"agentos/internal/host/confine"
)

// order is what a child of the test does: confine itself as the tool would (or
// not, to show that the probes themselves work), run the tool, try the probes.
type order struct {
	Tool, Args        string
	Confine           bool
	RPMDB, JournalDir string
	Bus               string
	Probes            []probe
}

type probe struct{ Op, Path string }

type report struct {
	Fault  string
	Result tool.Result
	Need   tool.Confinement
	Probes map[string]string // "op path" to the error, "" when it worked
}

const child = "confined-child"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child {
		var o order
		if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
			os.Exit(2)
		}
		if err := json.NewEncoder(os.Stdout).Encode(obey(o)); err != nil {
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// obey runs in the child.
func obey(o order) report {
	h := linux.Local()
	h.RPMDB, h.JournalDir = o.RPMDB, o.JournalDir
	if o.Bus != "" {
		h.Bus = o.Bus
	}
	need, err := linux.Confine(h, o.Tool, []byte(o.Args))
	if err != nil {
		return report{Fault: err.Error()}
	}
	out := report{Need: need, Probes: map[string]string{}}
	if o.Confine {
		r, err := confine.Apply(confine.Plan{
			Name: "test", Profile: confine.Tool, NonRoot: true, Read: need.Read, Exec: need.Exec, Connect: need.Connect, Procs: need.Procs,
		})
		if err != nil {
			return report{Fault: err.Error()}
		}
		h.Conns = r.Conns
	}
	d, _ := catalog.Lookup(o.Tool)
	out.Result = linux.Run(context.Background(), h, d, []byte(o.Args))
	for _, p := range o.Probes {
		out.Probes[p.Op+" "+p.Path] = try(p)
	}
	return out
}

// try makes one attempt and returns its error as text.
func try(p probe) string {
	var err error
	switch p.Op {
	case "read":
		var fd int
		if fd, err = unix.Open(p.Path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err == nil {
			if _, e := unix.Read(fd, make([]byte, 16)); e != nil && e != unix.EISDIR {
				err = e
			}
			_ = unix.Close(fd)
		}
	case "list":
		_, err = os.ReadDir(p.Path)
	case "write":
		err = os.WriteFile(p.Path, []byte("x"), 0o600)
	case "exec":
		err = exec.Command(p.Path, "--version").Run()
	case "loader": // the dynamic loader may be executed: it must not be a way to run others
		err = exec.Command("/lib64/ld-linux-x86-64.so.2", p.Path, "--version").Run()
	case "socket":
		family := map[string]int{"inet": unix.AF_INET, "inet6": unix.AF_INET6, "unix": unix.AF_UNIX, "netlink": unix.AF_NETLINK}[p.Path]
		var fd int
		if fd, err = unix.Socket(family, unix.SOCK_STREAM, 0); err == nil {
			_ = unix.Close(fd)
		}
		if family == unix.AF_NETLINK && err == unix.ESOCKTNOSUPPORT {
			err = nil // the family was reached
		}
	case "dial":
		var c net.Conn
		if c, err = net.Dial("unix", p.Path); err == nil {
			c.Close()
		}
	case "unshare":
		err = unix.Unshare(unix.CLONE_FS) // what an ordinary user may in a threaded process
	case "signal":
		var pid int
		if _, err = fmt.Sscanf(p.Path, "%d", &pid); err == nil {
			err = unix.Kill(pid, 0)
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

const uid, gid = 64201, 64202

// run starts a child under uid that obeys o. Its environment is empty.
func run(t *testing.T, o order) report {
	t.Helper()
	return runAs(t, &syscall.Credential{Uid: uid, Gid: gid}, o)
}

func runAs(t *testing.T, as *syscall.Credential, o order) report {
	t.Helper()
	in, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self(t), child)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdin = strings.NewReader(string(in))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, stderr.String())
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return r
}

// openDir is a scratch folder that any user can look into.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// self is a copy of this test binary that other users can execute.
func self(t *testing.T) string {
	t.Helper()
	path := filepath.Join(openDir(t), "self")
	copyFile(t, "/proc/self/exe", path, 0o755)
	return path
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
}
