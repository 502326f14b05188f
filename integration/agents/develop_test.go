//go:build linux

package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestCommands: what developers type, with the profile of unknown programs.
func TestCommands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *worker) {
		for _, tt := range []struct {
			code int
			want string
			argv []string
		}{
			{0, "nothing to commit", []string{"git", "status"}},
			{0, "by the owner", []string{"git", "log", "--oneline"}},
			{0, "4 /home/agent", []string{"node", "-p", "`${2+2} ${os.homedir()}`"}},
			{0, "/tmp ok", []string{"python3", "-c", "import tempfile, multiprocessing as m; m.Lock(); print(tempfile.gettempdir(), 'ok')"}},
			{0, ".", []string{"npm", "--version"}},
			{0, "job 143", []string{"bash", "-c", "sleep 99 & kill %1; wait %1; echo job $?"}},
			{0, "3 of 3", []string{"bash", "-c", "n=0; for i in a b c; do diff <(echo $i) <(echo $i) && n=$((n+1)); done; echo $n of 3"}},
			{1, "Read-only file system", []string{"touch", "new"}},
			{7, "", []string{"sh", "-c", "exit 7"}},
		} {
			w.run(tt.code, []string{tt.want}, append([]string{"-q", "--"}, tt.argv...)...)
		}
		w.clean()
	})
}

// TestPath: a later caller's PATH counts, not that of who started agentosd.
func TestPath(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *worker) {
		w.run(0, nil, "-q", "--", "true")
		tools := filepath.Join(w.Home, "tools")
		w.folder(tools)
		if err := os.WriteFile(filepath.Join(tools, "greet"), []byte("#!/bin/sh\necho hello from greet\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		w.use(tools)
		w.run(0, []string{"hello from greet"}, "-q", "--ro", tools, "--", "greet")
		w.run(0, []string{"hello from greet"}, "-q", "--ro", tools, "--", "sh", "-c", "greet")
	})
}

const gitWork = `set -e
git status --short --branch
echo two >$1.txt; git add $1.txt; git commit -q -m 'by the agent'
git checkout -q -b topic; echo three >$1-more.txt; git add .; git commit -q -m more; git checkout -q -; git merge -q topic
git stash list; git tag v1
git log --format='%an: %s' -n 1
! git config user.name other 2>/dev/null
hooks=$(git rev-parse --git-common-dir)/hooks; ! touch $hooks/pre-commit 2>/dev/null`

// TestGit commits in a repository and in a worktree; hooks and configuration stay
// the owner's. Spec: C-02.
func TestGit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *worker) {
		main := w.Dir
		w.run(0, []string{"Agent: more"}, "-q", "--rw", main, "--", "sh", "-c", gitWork, "sh", "repository")
		w.clean()
		w.owned(main)
		tree := filepath.Join(w.Home, "tree")
		w.out("git", "tag", "-d", "v1")
		w.out("git", "branch", "-d", "topic")
		w.out("git", "worktree", "add", "-q", "-b", "side", tree, "main~2")
		w.Dir = tree
		w.run(0, []string{"Agent: more"}, "-q", "--rw", tree, "--", "sh", "-c", gitWork, "sh", "worktree")
		w.clean()
		w.owned(tree)
		w.owned(main)
		w.out("git", "fsck", "--strict")
		if n := strings.Count(w.out("git", "log", "--all", "--format=%an"), "Agent"); n != 4 {
			t.Errorf("%d commits of the agent in the shared repository, want 4", n)
		}
	})
}

// TestGoBuild: a toolchain outside the system's folders, granted by --ro.
func TestGoBuild(t *testing.T) {
	t.Parallel()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot := strings.TrimSpace(string(root))
	each(t, func(t *testing.T, w *worker) {
		w.use(filepath.Join(goroot, "bin"))
		w.write("go.mod", "module small\n\ngo 1.24\n")
		w.write("main.go", "package main\n\nfunc main() { println(\"built\") }\n")
		w.run(0, nil, "-q", "--rw", w.Dir, "--ro", goroot, "--", "go", "build", "-o", "small", ".")
		w.owned(filepath.Join(w.Dir, "small"))
		if s := w.out(filepath.Join(w.Dir, "small")); s != "built\n" {
			t.Errorf("it says %q", s)
		}
	})
}

func buildStatic(t *testing.T, pkg, to string) {
	t.Helper()
	c := exec.Command("go", "build", "-o", to, pkg)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+runtime.GOARCH)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
