//go:build linux

package agents

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// install puts an npm package into a cache outside the tree, once, and returns
// its prefix. Concurrent test binaries wait for each other.
func install(t *testing.T, pkg, version string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "agentos-test", "agents")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, filepath.Base(pkg)+"@"+version)
	lock, err := os.Create(dir + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "npm", "install", "--global", "--prefix", part, "--no-audit", "--no-fund", pkg+"@"+version).CombinedOutput()
	if err != nil {
		t.Fatalf("npm install %s@%s: %v\n%s", pkg, version, err, out)
	}
	if err := os.Rename(part, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fetch gives the worker an installed package below their home, as npm with a
// prefix there does, and returns its prefix.
func (w *worker) fetch(pkg, version string) string {
	w.T.Helper()
	from := install(w.T, pkg, version)
	to := filepath.Join(w.Home, strings.ReplaceAll(filepath.Base(pkg), "@", "")+"-prefix")
	// Hard links where that works: some packages have 400 MB.
	if _, err := exec.Command("cp", "-a", "--link", from, to).CombinedOutput(); err != nil {
		_ = os.RemoveAll(to)
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			w.T.Fatalf("copy %s: %v\n%s", from, err, out)
		}
	}
	w.use(filepath.Join(to, "bin"))
	return to
}
