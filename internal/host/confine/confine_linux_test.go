package confine

import (
	"os"
	"path/filepath"
	"testing"
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
