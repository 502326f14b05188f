package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct
36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices
39 31 0:36 /docker/x /sys/fs/c\040g/pids rw - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
short line
42 31 0:38 / relative rw - cgroup2 cgroup2 rw
`
	want := []hierarchy{
		{controllers: []string{"cpu"}, mount: "/sys/fs/cgroup/cpu,cpuacct", root: "/"},
		{controllers: []string{"pids"}, mount: "/sys/fs/c g/pids", root: "/docker/x"},
		{v2: true, mount: "/sys/fs/cgroup/unified", root: "/"},
	}
	if diff := cmp.Diff(want, parseMounts(text), cmp.AllowUnexported(hierarchy{})); diff != "" {
		t.Error(diff)
	}
	own := parseOwn("9:name=systemd:/\n2:cpu,cpuacct:/a/b\n0::/u:1\nx\n")
	if diff := cmp.Diff(map[string]string{"name=systemd": "/", "cpu": "/a/b", "cpuacct": "/a/b", "": "/u:1"}, own); diff != "" {
		t.Error(diff)
	}
}

func FuzzMounts(f *testing.F) {
	f.Add("41 31 0:38 / /sys/fs/cgroup\\040x rw - cgroup2 cgroup2 rw\n", "0::/x\n")
	f.Add("32 31 0:29 / /c rw - cgroup cgroup rw,cpu\\", "1:cpu:\n::\n")
	f.Fuzz(func(t *testing.T, mounts, own string) {
		paths := parseOwn(own)
		for _, h := range parseMounts(mounts) {
			if !h.v2 && len(h.controllers) == 0 || !filepath.IsAbs(h.mount) {
				t.Errorf("%+v", h)
			}
			if b := h.base(paths, false); b != "" && !strings.HasPrefix(b, filepath.Clean(h.mount)) {
				t.Errorf("base %q outside of %q", b, h.mount)
			}
		}
	})
}

// tree makes folders and files that stand for a hierarchy.
func tree(t *testing.T, paths ...string) string {
	t.Helper()
	top := t.TempDir()
	for _, p := range paths {
		p = filepath.Join(top, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// Without root, groups go to the uppermost folder that was given to the user.
func TestBase(t *testing.T) {
	t.Parallel()
	top := tree(t, "cgroup.controllers", "user/cgroup.procs", "user/me/cgroup.procs", "user/me/app/cgroup.procs", "other/cgroup.procs")
	h := hierarchy{v2: true, mount: top, root: "/"}
	for own, want := range map[string]string{"/user/me/app": "/user", "/user": "/user", "/other": "/other", "/": "", "/../x": "", "": "", "/gone": ""} {
		got := h.base(map[string]string{"": own}, false)
		if want != "" {
			want = top + want
		}
		if got != want {
			t.Errorf("own %q: %q, want %q", own, got, want)
		}
	}
	if got := h.base(nil, true); got != top {
		t.Errorf("root: %q", got)
	}
	part := hierarchy{v2: true, mount: top, root: "/docker"}
	if got := part.base(map[string]string{"": "/user"}, false); got != "" {
		t.Errorf("a group outside of what is mounted: %q", got)
	}
}

// version makes a manager for one version of this machine, in folders of its own.
func version(t *testing.T, which string) *Manager {
	t.Helper()
	m, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if m.v2 == "" || len(m.v1) < 4 {
		t.Fatalf("this machine's groups are not hybrid: %+v", m)
	}
	switch which {
	case "v1":
		m.v2 = ""
	case "v2":
		m.v1 = map[string]string{}
	}
	return m
}

func runIn(t *testing.T, g *Group, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if d := g.Dir(); d != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.Fd())
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// Spec: INV-05. Kill ends everything, in every version, and nothing stays.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"v1", "v2", "both"} {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			m := version(t, v)
			limits := Limits{PIDs: 40, MemoryBytes: 1 << 30, CPUPercent: 150}
			g, missing, err := m.New("test-kill-"+v, limits)
			if err != nil {
				t.Fatal(err)
			}
			want := []string(nil)
			if v == "v2" { // here without controllers
				want = []string{"pids", "memory", "cpu"}
			}
			if diff := cmp.Diff(want, missing); diff != "" {
				t.Error(diff)
			}
			// The shell waits for a byte, so that it is in its groups before it forks.
			cmd := exec.Command("sh", "-c", `read x; (setsid sleep 1000 & setsid sh -c 'while :; do sleep 1000 & sleep 0.01; done' &) ; kill -STOP $$`)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if d := g.Dir(); d != nil {
				cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.Fd())
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := g.Add(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write([]byte("x\n")); err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { return len(procs(t, g)) > 10 })
			if err := g.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			until(t, func() bool { return len(procs(t, g)) == 0 })
			if err := g.Remove(); err != nil {
				t.Error(err)
			}
			for _, p := range g.Paths() {
				if _, err := os.Stat(p); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is still there", p)
				}
			}
		})
	}
}

func procs(t *testing.T, g *Group) []string {
	t.Helper()
	var out []string
	for _, p := range g.Paths()[:1] {
		if g.Dir() != nil {
			p = filepath.Join(p, inner)
		}
		b, err := os.ReadFile(filepath.Join(p, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Fields(string(b))...)
	}
	return out
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for range 5000 {
		if ok() {
			return
		}
		<-time.After(2 * time.Millisecond)
	}
	t.Fatal("it never happened")
}

func TestLimits(t *testing.T) {
	t.Parallel()
	m := version(t, "both")
	g, missing, err := m.New("test-limits", Limits{PIDs: 20, MemoryBytes: 64 << 20, CPUPercent: 50})
	if err != nil || missing != nil {
		t.Fatal(err, missing)
	}
	defer func() {
		if err := errors.Join(g.Kill(), g.Remove()); err != nil {
			t.Error(err)
		}
	}()
	for name, want := range map[string]string{"pids.max": "36", "memory.limit_in_bytes": "67108864", "cpu.cfs_quota_us": "50000"} {
		found := false
		for _, p := range g.Paths() {
			if b, err := os.ReadFile(filepath.Join(p, name)); err == nil {
				found = true
				if got := strings.TrimSpace(string(b)); got != want {
					t.Errorf("%s is %s, want %s", name, got, want)
				}
			}
		}
		if !found {
			t.Errorf("%s is nowhere", name)
		}
	}
	// The limit holds: a process that wants more memory is killed.
	cmd := exec.Command("sh", "-c", "read x; exec head -c 200m /dev/zero | tail -c 199m >/dev/null")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("200 MiB fit into 64")
	}
}

// Two makers: names are taken once; the groups of one that lives are left alone,
// those of one that is gone are emptied and removed.
func TestClean(t *testing.T) {
	t.Parallel()
	m := version(t, "both")
	g, _, err := m.New("test-clean", Limits{PIDs: 50})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.New("test-clean", Limits{}); err == nil {
		t.Error("a second group of the same name was made")
	}
	cmd := runIn(t, g, "sleep", "1000")
	other := version(t, "both")
	if err := other.Clean(); err != nil {
		t.Fatal(err)
	}
	if n := len(procs(t, g)); n != 1 {
		t.Fatalf("%d processes left in a group whose maker lives", n)
	}
	for _, f := range g.locks { // as the kernel does when the maker is killed
		_ = f.Close()
	}
	if err := other.Clean(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v", err)
	}
	for _, p := range g.Paths() {
		if _, err := os.Stat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", p)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	m := version(t, "both")
	for _, run := range []string{"", "a/b", "..", ".", "x\x00"} {
		if g, _, err := m.New(run, Limits{}); err == nil {
			t.Errorf("%q: made %v", run, g.Paths())
		}
	}
}
