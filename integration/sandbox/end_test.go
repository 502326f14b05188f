//go:build linux

package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// within is how long anything of a stopped run may be left. Spec: INV-05, C-13.
const within = time.Second

// as runs f for everybody who runs the product here.
func as(t *testing.T, f func(t *testing.T, w *trial)) {
	t.Helper()
	for name, uid := range people() {
		t.Run(name, func(t *testing.T) { f(t, &trial{world: newWorld(t, uid)}) })
	}
}

// grow starts a family in a sandbox that doesn't want to end.
func (w *trial) grow(t *testing.T, flags ...string) (mark string, c *exec.Cmd) {
	t.Helper()
	mark = fmt.Sprintf("mark-%d-%d", os.Getpid(), time.Now().UnixNano())
	c = command(context.Background(), w.uid, w.home, w.targets.Workspace, agentos(), append(append([]string{"run", "--name", "family"}, flags...), "--", w.probe, "tree", mark)...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "grown" {
		t.Log(lines.Text())
	}
	// The parent, five children of which one has left, and what that one left.
	if !eventually(10*time.Second, func() bool { return len(w.inSandbox(mark)) == 6 }) {
		_ = c.Process.Kill()
		_ = c.Wait()
		t.Fatalf("%d processes in the sandbox, want 6: %s", len(w.inSandbox(mark)), said.String())
	}
	return mark, c
}

// inSandbox are the processes with mark that are not in this PID namespace.
func (w *trial) inSandbox(mark string) []int {
	own, _ := os.Readlink("/proc/self/ns/pid")
	return slices.DeleteFunc(processes(mark), func(pid int) bool {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return err != nil || ns == own
	})
}

// gone fails the test unless nothing with mark is left in time.
func (w *trial) gone(t *testing.T, mark string) {
	t.Helper()
	start := time.Now()
	if !eventually(10*within, func() bool { return len(w.inSandbox(mark)) == 0 }) {
		t.Fatalf("%d processes are left", len(w.inSandbox(mark)))
	}
	if took := time.Since(start); took > within {
		t.Errorf("processes were left for %s", took)
	}
}

// A stop takes the whole family. Spec: C-13.
func TestStop(t *testing.T) {
	as(t, func(t *testing.T, w *trial) {
		mark, _ := w.grow(t)
		if r := finish(t, command(t.Context(), w.uid, w.home, w.targets.Workspace, agentos(), "kill", "family")); r.code != 0 {
			t.Fatal(r)
		}
		w.gone(t, mark)
	})
}

// Whichever part is killed, nothing of the run is left.
func TestPartsKilled(t *testing.T) {
	as(t, func(t *testing.T, w *trial) {
		for _, part := range []string{"agentos-shim", "agentos-launcher", "agentos-sandbox", "agentosd", "agentos"} {
			t.Run(part, func(t *testing.T) {
				mark, c := w.grow(t)
				pid := c.Process.Pid
				if part != "agentos" {
					pid = w.part(t, part)
				}
				must(t, syscall.Kill(pid, syscall.SIGKILL))
				w.gone(t, mark)
				if part == "agentosd" || part == "agentos-launcher" { // the next run needs it anew
					_ = c.Wait()
				}
			})
		}
		w.untouched(t)
	})
}

// daemon finds this world's agentosd, or returns 0.
func (w *world) daemon() int {
	for _, pid := range processes(filepath.Join(bin, "agentosd")) {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(env), "HOME="+w.home+"\x00") && strings.HasPrefix(string(args), filepath.Join(bin, "agentosd")) {
			return pid
		}
	}
	return 0
}

// dismiss ends it: it would wait for the next run.
func (w *world) dismiss() {
	if pid := w.daemon(); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		if !eventually(10*time.Second, func() bool { return w.daemon() == 0 }) {
			w.t.Error("agentosd does not end")
		}
	}
}

// part finds a process of this world's product by the name that it runs under.
func (w *trial) part(t *testing.T, name string) int {
	t.Helper()
	daemon := w.daemon()
	if daemon == 0 {
		t.Fatal("no agentosd of this person")
	}
	if name == "agentosd" {
		return daemon
	}
	for _, pid := range below(daemon) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(args), name+"\x00") {
			return pid
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// below lists the processes that descend from pid.
func below(pid int) (out []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, d := range dirs {
		b, err := os.ReadFile(d)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) > 1 && f[1] == strconv.Itoa(pid) {
			var child int
			_, _ = fmt.Sscanf(d, "/proc/%d/stat", &child)
			out = append(append(out, child), below(child)...)
		}
	}
	return out
}

// untouched fails the test if a run left anything in the workspace. Spec: C-03.
func (w *trial) untouched(t *testing.T) {
	t.Helper()
	var got []string
	list, err := os.ReadDir(w.targets.Workspace)
	must(t, err)
	for _, e := range list {
		got = append(got, e.Name())
	}
	want := []string{".git", "link-out", "probe", "sub", "targets.json"}
	if root() {
		want = append(want, "file-caps", "setuid-root")
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("in the workspace: %q, want %q", got, want)
	}
}

// A repository is as clean after a run as before, however it ended. Spec: C-03.
func TestRepositoryClean(t *testing.T) {
	as(t, func(t *testing.T, w *trial) {
		dir := filepath.Join(w.home, "repository")
		w.put(filepath.Join(dir, "file"), "content\n", 0o644)
		git := func(args ...string) string {
			t.Helper()
			r := finish(t, command(t.Context(), w.uid, w.home, dir, "git", args...))
			if r.code != 0 {
				t.Fatalf("git %q: %s", args, r.err)
			}
			return r.out
		}
		git("init", "-q")
		git("add", ".")
		git("-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-q", "-m", "first")
		for _, flags := range [][]string{nil, {"--rw", dir}, {"--rw", dir, "--profile", "claude-code"}} {
			for name, script := range map[string]string{"normal": "true", "killed": "kill -9 $$", "all killed": "sleep 60 & kill -9 -1; kill -9 $$"} {
				args := append(append([]string{"run"}, flags...), "--", "sh", "-c", script)
				r := finish(t, command(t.Context(), w.uid, w.home, dir, agentos(), args...))
				if ended := r.code == 0 || r.code == 137; !ended {
					t.Errorf("%s %q: exit %d: %s", name, flags, r.code, r.err)
				}
				if s := git("status", "--porcelain", "--ignored"); s != "" {
					t.Errorf("%s %q: git status says %q", name, flags, s)
				}
			}
		}
	})
}
