//go:build linux

// Package deb builds the Debian package as make deb does, looks at what is in
// it, and installs, upgrades, removes and purges it on this machine, which it
// leaves as it was.
package deb

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Versions that only this test makes, so that it knows its own package again.
const (
	oldVersion = "v0.0.1-package.test"
	newVersion = "v0.0.2-package.test"
	oldDeb     = "0.0.1~package.test-1"
	newDeb     = "0.0.2~package.test-1"
)

// needs ends the test where it can't have an effect, and makes sure that the
// agentos of this machine, if there is one, stays untouched.
func needs(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: installs a package")
	}
	for _, tool := range []string{"dpkg", "lintian", "man", "zsh", "fish", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: integration/setup.sh installs it on Debian", tool)
		}
	}
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "agentos-package-test.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if v := installed(t); v == oldDeb || v == newDeb {
		purge(t) // of a test that was killed
	} else if v != "" {
		t.Skipf("agentos %s is installed here; this test would replace it", v)
	}
	if _, err := os.Stat("/usr/libexec/agentos"); !errors.Is(err, fs.ErrNotExist) {
		t.Skip("programs that are not from a package are in /usr/libexec/agentos")
	}
}

// installed is the version that dpkg knows, or "".
func installed(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", "agentos").Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// purge ends what runs from the package and takes it away.
func purge(t *testing.T) {
	t.Helper()
	endDaemons(t)
	dpkg(t, "--purge", "agentos")
}

// dpkg runs it, waiting while somebody else has its lock.
func dpkg(t *testing.T, args ...string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Second) {
		// Images of Debian leave documents out; here they are part of the test.
		out, err := exec.Command("dpkg", append([]string{"--path-include=/usr/share/*"}, args...)...).CombinedOutput()
		if err == nil {
			return string(out)
		}
		if !strings.Contains(string(out), "lock") || time.Now().After(end) {
			t.Fatalf("dpkg %q: %v\n%s", args, err, out)
		}
	}
}

// programs lists the PIDs that run one of ours, with its path; " (deleted)" is
// part of it when the file was replaced.
func programs(t *testing.T) map[int]string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]string{}
	for _, l := range links {
		exe, err := os.Readlink(l)
		if err != nil || !strings.HasPrefix(exe, "/usr/libexec/agentos/") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(l)))
		if err != nil {
			t.Fatal(err)
		}
		out[pid] = exe
	}
	return out
}

// endDaemons ends every agentosd that runs from the package, and waits.
func endDaemons(t *testing.T) {
	t.Helper()
	for pid, exe := range programs(t) {
		if strings.HasPrefix(exe, "/usr/libexec/agentos/agentosd") {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	wait(t, "the end of every program of the package", func() bool { return len(programs(t)) == 0 })
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(45 * time.Second); !done(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s; programs: %v", what, programs(t))
		}
	}
}

// person is who runs a command, and where.
type person struct {
	uid, gid uint32
	dir      string // the workspace
	env      []string
}

// run gives standard output, standard error and the exit code.
func (p person) run(t *testing.T, argv ...string) (string, string, int) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"}, p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.uid, Gid: p.gid}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("start %q: %v", argv, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// ok is run for a command that must succeed.
func (p person) ok(t *testing.T, argv ...string) string {
	t.Helper()
	out, errs, code := p.run(t, argv...)
	if code != 0 {
		t.Fatalf("%q as %d: exit code %d\n%s\n%s", argv, p.uid, code, out, errs)
	}
	return out
}

// sh runs a command of the test itself and gives all of its output.
func sh(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

// paths is every path of this machine that a package could leave behind.
func paths(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, root := range []string{"/usr", "/etc", "/var/lib", "/var/cache/apparmor", "/var/log/agentos", "/run/agentos"} {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // somebody else's, gone meanwhile
				return nil
			case err != nil:
				return err
			case d.IsDir() && (p == "/usr/local/go" || p == "/var/lib/apt" || p == "/var/lib/docker" || p == "/var/lib/containerd"):
				return fs.SkipDir
			}
			out[p] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
