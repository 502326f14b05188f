//go:build linux

// Package agents runs real programs, unmodified, by `agentos run` on the built
// binaries: coding agents from npm, a developer's commands, full-screen programs.
// What a sandbox holds back is integration/sandbox's, how runs start and end
// integration/run's.
package agents

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/integration/person"
)

var bin string

func TestMain(m *testing.M) { os.Exit(person.Main(m, &bin)) }

// worker is a person with a repository to work in.
type worker struct {
	*person.Person
	path string // PATH, with the programs that were installed
}

// each runs f for a worker of every kind, and checks afterwards that nothing is
// left of their runs.
func each(t *testing.T, f func(t *testing.T, w *worker)) {
	t.Helper()
	person.Everybody(t, bin, func(t *testing.T, p *person.Person) {
		w := &worker{Person: p, path: programs(t)}
		p.Dir = filepath.Join(p.Home, "work")
		w.folder(p.Dir)
		w.out("git", "init", "-q", "-b", "main", ".")
		w.write("a.txt", "one\n")
		w.commit()
		t.Cleanup(w.leave)
		f(t, w)
	})
}

// programs is a PATH with the system's programs and, wherever it is, node.
func programs(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v; integration/setup.sh installs what these tests need", err)
	}
	return "/usr/local/bin:/usr/bin:/bin:" + filepath.Dir(node)
}

func (w *worker) use(dir string) { w.path = dir + ":" + w.path; w.Env = []string{"PATH=" + w.path} }

// run is one `agentos run` to its end, with the exit code and texts that it must
// have.
func (w *worker) run(code int, texts []string, args ...string) person.Result {
	w.T.Helper()
	w.Env = []string{"PATH=" + w.path}
	return w.Want(code, texts, append([]string{"run"}, args...)...)
}

// out is one command of the worker outside.
func (w *worker) out(name string, args ...string) string {
	w.T.Helper()
	c := exec.CommandContext(context.WithoutCancel(w.T.Context()), name, args...)
	c.Dir, c.Env = w.Dir, []string{"HOME=" + w.Home, "PATH=" + w.path}
	if os.Getuid() == 0 && w.UID != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: w.UID, Gid: w.UID}}
	}
	b, err := c.CombinedOutput()
	if err != nil {
		w.T.Fatalf("%s %q: %v\n%s", name, args, err, b)
	}
	return string(b)
}

func (w *worker) commit() {
	w.T.Helper()
	w.out("git", "add", "-A")
	w.out("git", "-c", "user.name=owner", "-c", "user.email=owner@localhost", "commit", "-q", "-m", "by the owner")
}

func (w *worker) folder(dir string) {
	w.T.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.T.Fatal(err)
	}
	w.give(dir)
}

// write makes a file of the worker in their workspace.
func (w *worker) write(name, text string) string {
	w.T.Helper()
	file := filepath.Join(w.Dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		w.T.Fatal(err)
	}
	w.give(file)
	return file
}

func (w *worker) give(path string) {
	w.T.Helper()
	if os.Getuid() != 0 {
		return
	}
	if err := os.Chown(path, int(w.UID), int(w.UID)); err != nil {
		w.T.Fatal(err)
	}
}

// clean requires that the workspace is as the owner left it. Spec: C-03.
func (w *worker) clean() {
	w.T.Helper()
	if s := w.out("git", "status", "--porcelain", "--ignored"); s != "" {
		w.T.Errorf("the workspace changed:\n%s", s)
	}
}

// owned requires that everything below dir is the worker's own.
func (w *worker) owned(dir string) {
	w.T.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		if n++; st.Uid != w.UID {
			w.T.Errorf("%s belongs to %d", path, st.Uid)
		}
		return nil
	})
	if err != nil || n == 0 {
		w.T.Errorf("%d files below %s: %v", n, dir, err)
	}
}

// leave checks the record and that no run left anything, and ends agentosd.
func (w *worker) leave() {
	runs := map[string]bool{}
	for _, r := range w.Log() {
		if r.Run != "" {
			runs[r.Run] = true
		}
	}
	if len(runs) == 0 {
		w.T.Error("no run was recorded")
	}
	w.Paired()
	for run := range runs {
		w.nothing(run)
	}
	w.unmounted()
	w.endDaemon()
}

// nothing requires that no process and no control group of a run is left.
func (w *worker) nothing(run string) {
	w.T.Helper()
	envs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range envs {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "AGENTOS_RUN="+run+"\x00") {
			cmd, _ := os.ReadFile(filepath.Dir(f) + "/cmdline")
			w.T.Errorf("left of %s: process %q", run, cmd)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), run) {
			w.T.Errorf("left: %s", path)
		}
		return nil
	})
}

func (w *worker) unmounted() {
	w.T.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		w.T.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, w.Home) {
			w.T.Errorf("left: mount %s", line)
		}
	}
}

// endDaemon doesn't wait for agentosd to find out that it is idle.
func (w *worker) endDaemon() {
	b, err := os.ReadFile(filepath.Join(w.State(), "lock"))
	if err != nil {
		w.T.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		w.T.Fatalf("lock: %v", err)
	}
	dir := "/proc/" + strconv.Itoa(pid)
	exe, err := os.Readlink(dir + "/exe")
	if err != nil || filepath.Dir(exe) != bin {
		return // it ended already
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		w.T.Error(err)
	}
	gone := func() bool { _, err := os.Readlink(dir + "/exe"); return err != nil }
	if !within(20*time.Second, gone) {
		w.T.Errorf("agentosd %d does not end on SIGTERM", pid)
	}
}

// within asks until the answer is yes, or the time is over.
func within(limit time.Duration, ok func() bool) bool {
	tick, over := time.NewTicker(50*time.Millisecond), time.After(limit)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over:
			return ok()
		}
	}
	return true
}
