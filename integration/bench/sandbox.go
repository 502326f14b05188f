package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// wrap measures what `agentos run` costs: to start, and for the work inside.
type wrap struct {
	bin  string
	runs int
}

// bwrapArgs is bubblewrap with the namespaces that a run gets.
var bwrapArgs = []string{
	"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup", "--unshare-net",
	"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
	"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent", "--new-session",
}

func (w wrap) section(ctx context.Context, scratch string) (Section, error) {
	out := Section{Title: "Programs in a sandbox", Note: `
A warm start finds the shared agentosd and its launcher running, as every start after the first does; a cold one starts them.
Both record the run before and after it, each record durable. Bubblewrap makes the same namespaces and records nothing. Work is
timed as the whole command inside against the whole command outside, the start taken off.`}
	agentos, err := filepath.Abs(filepath.Join(w.bin, "agentos"))
	if err != nil {
		return out, err
	}
	work := filepath.Join(scratch, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return out, err
	}
	kept := state(filepath.Join(scratch, "state"))
	inside := func(env []string, argv ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			return timedIn(ctx, work, env, agentos, append([]string{"run", "--quiet", "--rw", work, "--"}, argv...)...)
		}
	}
	outside := func(argv ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) { return timedIn(ctx, work, nil, argv[0], argv[1:]...) }
	}
	rows, err := w.starts(ctx, scratch, inside, outside, kept)
	if err != nil {
		return out, err
	}
	out.Rows = rows
	rows, err = w.work(ctx, work, inside, outside, kept)
	out.Rows = append(out.Rows, rows...)
	return out, err
}

func (w wrap) starts(ctx context.Context, scratch string, inside func([]string, ...string) func() (time.Duration, error), outside func(...string) func() (time.Duration, error), kept []string) ([]Row, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, fmt.Errorf("find bubblewrap, the peer (Debian: bubblewrap): %w", err)
	}
	n := 0
	cold := func() (time.Duration, error) {
		n++
		return inside(state(filepath.Join(scratch, fmt.Sprint("cold", n))), "true")()
	}
	ms, err := interleave(w.runs, outside("/bin/true"), outside(append(append([]string{bwrap}, bwrapArgs...), "true")...), inside(kept, "true"), cold)
	if err != nil {
		return nil, err
	}
	return []Row{
		{Name: "bubblewrap, true", Value: ms[1], Unit: "ms", Base: ms[0], BaseName: "/bin/true"},
		{Name: "agentos run, true, warm", Value: ms[2], Unit: "ms", Base: ms[1], BaseName: "bubblewrap", Target: "< 1.0, and ≤ 10 ms above bare"},
		{Name: "agentos run, true, cold", Value: ms[3], Unit: "ms", Base: ms[1], BaseName: "bubblewrap", Target: "≤ 1.3"},
	}, nil
}

// work compares whole commands, each less the start of `true` in the same way.
func (w wrap) work(ctx context.Context, dir string, inside func([]string, ...string) func() (time.Duration, error), outside func(...string) func() (time.Duration, error), kept []string) ([]Row, error) {
	if err := gitTree(ctx, filepath.Join(dir, "tree"), 10_000); err != nil {
		return nil, err
	}
	jobs := []struct{ name, script string }{
		{"CPU: 2 million turns of a shell loop", "i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done"},
		{"git status, 10,000 files", "cd tree && git status --porcelain >/dev/null"},
		{"500 short processes", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"},
	}
	var rows []Row
	for _, j := range jobs {
		ms, err := interleave(max(5, w.runs/3), outside("/bin/sh", "-c", "true"), inside(kept, "sh", "-c", "true"), outside("/bin/sh", "-c", j.script), inside(kept, "sh", "-c", j.script))
		if err != nil {
			return rows, err
		}
		rows = append(rows, Row{
			Name: j.name, Value: ms[3] - ms[1], Unit: "ms", Base: ms[2] - ms[0], BaseName: "outside", Target: "≤ 1.03",
		})
	}
	return rows, nil
}

// gitTree makes a repository of n small committed files.
func gitTree(ctx context.Context, dir string, n int) error {
	for i := range n {
		d := filepath.Join(dir, fmt.Sprint("d", i%100))
		if i < 100 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(d, fmt.Sprint("f", i)), []byte(fmt.Sprintln("file", i)), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=b", "-c", "user.email=b@example.test", "commit", "-q", "-m", "tree"}} {
		if _, err := timedIn(ctx, dir, nil, "git", args...); err != nil {
			return err
		}
	}
	return nil
}

// timedIn is timed in a directory.
func timedIn(ctx context.Context, dir string, env []string, name string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("run %q %q: %w: %.400s", name, args, err, out)
	}
	return took, nil
}
