package confine

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Spec: OSA-02, AOS-17. Every probe succeeds (or gets past the permission) in
// the same child before, and is refused after.
func TestForbidden(t *testing.T) {
	t.Parallel()
	for _, layer := range []string{"seccomp", "all"} {
		for _, plan := range []Plan{
			{Profile: Loop}, {Profile: Shim}, {Profile: Tool, Read: []string{"/etc"}},
			{Profile: ToolExec, Exec: []string{"/bin/true"}},
		} {
			t.Run(layer+"/"+string(plan.Profile), func(t *testing.T) {
				t.Parallel()
				o := order{Plan: plan, Layer: layer, Do: "probe"}
				a := run(t, o)
				if a.Err != "" {
					t.Fatal(a.Err)
				}
				for _, p := range probesFor(o) {
					if got := a.Before[p.name]; got != p.before {
						t.Errorf("%s before: got %q, want %q", p.name, got, p.before)
					}
					got := a.After[p.name]
					if p.name == "open to write" && plan.Profile == ToolExec {
						if layer == "all" && got != "EACCES" { // Landlock's part
							t.Errorf("%s after: got %q, want EACCES", p.name, got)
						}
						continue
					}
					if got != "EPERM" && got != "ENOSYS" {
						t.Errorf("%s after: got %q, want EPERM or ENOSYS", p.name, got)
					}
				}
			})
		}
	}
}

func TestRuntimeGoesOn(t *testing.T) {
	t.Parallel()
	for _, plan := range []Plan{
		{Profile: Loop}, {Profile: Shim}, {Profile: Tool}, {Profile: ToolExec, Exec: []string{"/bin/true"}},
	} {
		t.Run(string(plan.Profile), func(t *testing.T) {
			if a := run(t, order{Plan: plan, Layer: "all", Do: "soak"}); a.Err != "" {
				t.Error(a.Err)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, d := range []string{in, out} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(out, "f"), filepath.Join(in, "link")); err != nil {
		t.Fatal(err)
	}
	yes := []string{in, filepath.Join(in, "f"), "/proc/meminfo"}
	no := []string{out, filepath.Join(out, "f"), filepath.Join(in, "link"), "/etc/passwd", "/proc/self/status", "/"}
	plan := Plan{Profile: Tool, Read: []string{in, "/proc/meminfo", "/nonexistent"}}
	for _, layer := range []string{"landlock", "all"} {
		a := run(t, order{Plan: plan, Layer: layer, Do: "files", Files: append(yes, no...)})
		if a.Err != "" {
			t.Fatal(a.Err)
		}
		if len(a.Report.Missing) != 1 || a.Report.LandlockABI < 1 {
			t.Errorf("report: %+v", a.Report)
		}
		for _, f := range yes {
			if a.Before[f] != "" || a.After[f] != "" {
				t.Errorf("%s %s: before %q, after %q, want both readable", layer, f, a.Before[f], a.After[f])
			}
		}
		for _, f := range no {
			if a.Before[f] != "" || a.After[f] != "EACCES" {
				t.Errorf("%s %s: before %q, after %q, want EACCES after", layer, f, a.Before[f], a.After[f])
			}
		}
	}
}

// A procfs inode that the kernel evicts comes back as another one. The rule must
// still match: a tool doesn't fail because memory was short.
func TestEvictedProcFile(t *testing.T) {
	t.Parallel()
	plan := Plan{Profile: Tool, Read: []string{"/proc/meminfo", "/proc/loadavg", "/proc/sys/kernel"}}
	files := []string{"/proc/meminfo", "/proc/loadavg", "/proc/sys/kernel/osrelease"}
	a := run(t, order{Plan: plan, Layer: "landlock", Do: "files", Files: files, Evict: true})
	for _, f := range files {
		if a.Err != "" || a.After[f] != "" {
			t.Errorf("%s: %q, %q", f, a.Err, a.After[f])
		}
	}
}

// Spec: OSA-02. Every thread is without privilege, and the limits hold.
func TestState(t *testing.T) {
	t.Parallel()
	for _, uid := range []int{0, 54321} {
		plan := Plan{Profile: Tool, Procs: true, NonRoot: uid != 0, OpenFiles: 64}
		a := run(t, order{Plan: plan, Layer: "all", Do: "state", UID: uid, Groups: []int{54322}})
		if a.Err != "" {
			t.Fatal(a.Err)
		}
		want := map[string]int64{
			"min nnp": 1, "min seccomp": 2, "caps": 0, "Max core file size": 0,
			"Max file size": 0, "Max open files": 64, "owner": 0,
		}
		for k, v := range want {
			if got := a.Numbers[k]; got != v {
				t.Errorf("uid %d: %s is %d, want %d", uid, k, got, v)
			}
		}
		if a.Numbers["threads"] < 4 {
			t.Errorf("uid %d: only %d threads looked at", uid, a.Numbers["threads"])
		}
		if a.Report.Bounding != (uid == 0) {
			t.Errorf("uid %d: bounding set dropped: %v", uid, a.Report.Bounding)
		}
	}
	// The control: without Apply the same process is dumpable and privileged.
	a := run(t, order{Plan: Plan{Profile: Tool}, Layer: "none", Do: "state"})
	if a.Numbers["min nnp"] != 0 || a.Numbers["min seccomp"] != 0 || a.Numbers["caps"] == 0 {
		t.Errorf("control: %v", a.Numbers)
	}
}

func TestRootRefused(t *testing.T) {
	t.Parallel()
	plan := Plan{Name: "x", Profile: Loop, NonRoot: true}
	for name, o := range map[string]order{
		"root":      {},
		"group 0":   {UID: 54321, Groups: []int{0, 5}},
		"uid":       {UID: 54321, Keep: "uid"},
		"gid":       {UID: 54321, Keep: "gid"},
		"saved uid": {UID: 54321, Keep: "saved uid"},
		"real gid":  {UID: 54321, Keep: "real gid"},
	} {
		o.Plan, o.Layer, o.Do = plan, "all", "none"
		if a := run(t, o); !strings.Contains(a.Err, ErrRoot.Error()) {
			t.Errorf("%s: got %q, want a refusal", name, a.Err)
		}
	}
	o := order{Plan: plan, Layer: "all", Do: "none", UID: 54321, Groups: []int{5}}
	if a := run(t, o); a.Err != "" {
		t.Errorf("non-root: %s", a.Err)
	}
}

// Landlock of this kernel doesn't stop connect to a pathname socket, so the
// filter must; what the plan declares was connected before.
func TestConnect(t *testing.T) {
	t.Parallel()
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- err.Error()
			return
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		b := make([]byte, 16)
		n, err := c.Read(b)
		if err == nil {
			_, err = c.Write([]byte("pong\n"))
		}
		if err != nil {
			done <- err.Error()
			return
		}
		done <- string(b[:n])
	}()
	a := run(t, order{Plan: Plan{Profile: Tool, Connect: []string{sock}}, Layer: "all", Do: "talk"})
	if a.Err != "" || a.Output != "pong\n" {
		t.Errorf("got %q, error %q", a.Output, a.Err)
	}
	if got := <-done; got != "ping\n" {
		t.Errorf("server got %q", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a = run(t, order{Plan: Plan{Profile: Tool, Connect: []string{sock}}, Layer: "all", Do: "talk"})
	if !strings.Contains(a.Err, "connect socket") {
		t.Errorf("nobody listens: got %q", a.Err)
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	plan := Plan{
		Profile: Tool,
		Read:    []string{"/var/lib/dpkg", "/usr/share/dpkg", "/etc/dpkg"},
		Exec:    []string{"/usr/bin/dpkg-query", "/usr/lib", "/lib", "/lib64"},
	}
	a := run(t, order{Plan: plan, Layer: "all", Do: "exec", UID: 54321,
		Argv: []string{"/usr/bin/dpkg-query", "-W", "-f", "${Package}", "bash"}})
	if a.Err != "" || a.Output != "bash" || a.Report.Profile != ToolExec {
		t.Errorf("dpkg-query: %q, error %q, profile %q", a.Output, a.Err, a.Report.Profile)
	}
	for _, argv := range [][]string{{"/bin/cat", "/etc/passwd"}, {"/usr/bin/dpkg", "--version"}} {
		a := run(t, order{Plan: plan, Layer: "all", Do: "exec", Argv: argv})
		if !strings.Contains(a.Err, "permission denied") {
			t.Errorf("%v: got %q, %q, want permission denied", argv, a.Output, a.Err)
		}
		if c := run(t, order{Plan: plan, Layer: "none", Do: "exec", Argv: argv}); c.Err != "" {
			t.Errorf("%v: control: %s", argv, c.Err)
		}
	}
}

func TestPlanRefused(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Plan{
		"no profile":      {},
		"unknown profile": {Profile: "x"},
		"loop with files": {Profile: Loop, Read: []string{"/etc"}},
		"shim with procs": {Profile: Shim, Procs: true},
		"loop that talks": {Profile: Loop, Connect: []string{"/run/x"}},
		"relative path":   {Profile: Tool, Read: []string{"etc"}},
		"unclean path":    {Profile: Tool, Read: []string{"/etc/../root"}},
		"exec of nothing": {Profile: ToolExec},
	} {
		if err := p.check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
