//go:build linux

package deb

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const goal = "Inspect this Linux system"

// TestPackage is the life of the package on this machine.
func TestPackage(t *testing.T) {
	needs(t)
	src := tree(t, root, filepath.Join(t.TempDir(), "src"))
	old := build(t, src, "022", oldVersion)
	t.Run("reproducible", func(t *testing.T) { reproducible(t, src, old) })
	t.Run("contents", func(t *testing.T) {
		dir := contents(t, old, src)
		pages(t, dir)
		completions(t, dir)
	})
	t.Run("lint", func(t *testing.T) { lint(t, old) })

	young := build(t, src, "022", newVersion, "DEB_COMPRESS=-Zgzip -z1")
	who := people(t)
	before := paths(t)
	t.Cleanup(func() {
		if installed(t) != "" {
			purge(t)
		}
	})
	dpkg(t, "-i", old)
	for name, p := range who {
		t.Run("used by "+name, func(t *testing.T) { use(t, p, oldVersion) })
	}
	t.Run("homes", func(t *testing.T) { homes(t, who["a user"]) })
	t.Run("upgrade under a run", func(t *testing.T) {
		for _, name := range []string{"root", "a user"} {
			upgrade(t, who[name], old, young)
		}
	})
	t.Run("reinstall", func(t *testing.T) {
		endDaemons(t)
		dpkg(t, "-i", young)
		if out := sh(t, nil, "dpkg", "-V", "agentos"); out != "" {
			t.Errorf("files differ from the package's: %s", out)
		}
		use(t, who["root"], newVersion)
	})
	t.Run("removed and purged", func(t *testing.T) { gone(t, who, before) })
}

// people are root, a system account, and a UID that no account has; each has a
// home and a workspace.
func people(t *testing.T) map[string]person {
	t.Helper()
	const account = "agentos-package"
	sh(t, nil, "useradd", "-r", "-M", "-s", "/usr/sbin/nologin", account)
	t.Cleanup(func() { sh(t, nil, "userdel", account) })
	uid, err := strconv.ParseUint(strings.TrimSpace(sh(t, nil, "id", "-u", account)), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(strings.TrimSpace(sh(t, nil, "id", "-g", account)), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("", "agentos-package")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	out := map[string]person{"root": {}, "a user": {uid: uint32(uid), gid: uint32(gid)}, "a UID without account": {uid: 54321, gid: 54321}}
	for name, p := range out {
		home := filepath.Join(base, fmt.Sprint(p.uid))
		p.dir = filepath.Join(home, "project")
		p.env = []string{"HOME=" + home}
		if err := os.MkdirAll(p.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{home, p.dir} {
			if err := os.Chown(d, int(p.uid), int(p.gid)); err != nil {
				t.Fatal(err)
			}
		}
		out[name] = p
	}
	return out
}

// use does what a person does first.
func use(t *testing.T, p person, version string) {
	if out := p.ok(t, "agentos", "--version"); !strings.Contains(out, version) {
		t.Errorf("version %q", out)
	}
	if out := p.ok(t, "agentos", "doctor"); !strings.Contains(out, "/usr/libexec/agentos\n") {
		t.Errorf("doctor does not say where its programs are:\n%s", out)
	}
	if out := p.ok(t, "agentos", "agent", "once", goal); !strings.Contains(out, "Findings:") || !strings.Contains(out, "verify") {
		t.Errorf("%s", out)
	}
	p.ok(t, "agentos", "run", "--", "true")
	if out, errs, code := p.run(t, "agentos", "run", "--", "sh", "-c", "echo seen; exit 7"); out != "seen\n" || code != 7 {
		t.Errorf("%q %q %d", out, errs, code)
	}
}

// homes: one that nothing may be executed from is fine, and so is one that isn't
// there with a state directory; the message says so.
func homes(t *testing.T, p person) {
	const script = `mount -t tmpfs -o noexec,mode=755 none "$1" && mkdir "$1/project" && chown -R "$2:$3" "$1" && cd "$1/project" &&
cp /bin/true . && ! ./true 2>/dev/null && rm true &&
setpriv --reuid "$2" --regid "$3" --clear-groups agentos agent once "$4" >/dev/null &&
setpriv --reuid "$2" --regid "$3" --clear-groups agentos run -- echo from noexec`
	home := filepath.Dir(p.dir)
	out := sh(t, p.env, "unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", home, fmt.Sprint(p.uid), fmt.Sprint(p.gid), goal)
	if !strings.Contains(out, "from noexec\n") {
		t.Errorf("%s", out)
	}
	endDaemons(t)

	nowhere := p
	nowhere.env = nil
	if _, errs, code := nowhere.run(t, "agentos", "agent", "once", goal); code != 2 || !strings.Contains(errs, "AGENTOS_STATE_DIR") {
		t.Errorf("without a home: %d %s", code, errs)
	}
	nowhere.env = []string{"AGENTOS_STATE_DIR=" + filepath.Join(home, "state")}
	nowhere.ok(t, "agentos", "agent", "once", goal)
	nowhere.ok(t, "agentos", "run", "--", "true")
}

// upgrade replaces the programs below a run, which goes on with the old ones and
// ends well, watched by the new command.
func upgrade(t *testing.T, p person, old, young string) {
	endDaemons(t)
	dpkg(t, "-i", old)
	flag := filepath.Join(p.dir, "go")
	run := strings.TrimSpace(p.ok(t, "agentos", "run", "-d", "--", "sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo survived"))
	began := programs(t)
	if len(began) < 3 {
		t.Fatalf("a run of fewer than three programs: %v", began)
	}
	dpkg(t, "-i", young)
	now := programs(t)
	for pid, exe := range began {
		if now[pid] != exe+" (deleted)" {
			t.Errorf("process %d ran %s, now %q", pid, exe, now[pid])
		}
	}
	if out := p.ok(t, "agentos", "--version"); !strings.Contains(out, newVersion) {
		t.Errorf("after the upgrade: %s", out)
	}
	if out := p.ok(t, "agentos", "ps"); !strings.Contains(out, run) {
		t.Errorf("the new command does not see the run %s:\n%s", run, out)
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := p.ok(t, "agentos", "logs", "-f", run); out != "begun\nsurvived\n" {
		t.Errorf("the run wrote %q", out)
	}
	endDaemons(t)
	use(t, p, newVersion)
}

// gone: after remove and purge this machine is as before, but for what users
// made. A run that is under way goes on.
func gone(t *testing.T, who map[string]person, before map[string]bool) {
	p := who["a user"]
	state := filepath.Join(filepath.Dir(p.dir), ".local/share/agentos/agentos.sqlite3")
	files := strings.Fields(sh(t, nil, "dpkg", "-L", "agentos"))
	_ = os.Remove(filepath.Join(p.dir, "go"))
	p.ok(t, "agentos", "run", "-d", "--rw", ".", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done; echo late >over")
	dpkg(t, "--remove", "agentos")
	if left := leftovers(t, before, files); len(left) > 0 {
		t.Errorf("remove leaves %q", left)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wait(t, "the end of the run", func() bool { b, _ := os.ReadFile(filepath.Join(p.dir, "over")); return string(b) == "late\n" })
	endDaemons(t)

	dpkg(t, "--purge", "agentos")
	if v := installed(t); v != "" {
		t.Errorf("dpkg still knows version %s", v)
	}
	if left := leftovers(t, before, files); len(left) > 0 {
		t.Errorf("purge leaves %q", left)
	}
	if info, err := filepath.Glob("/var/lib/dpkg/info/agentos.*"); err != nil || len(info) > 0 {
		t.Errorf("dpkg keeps %q %v", info, err)
	}
	if _, err := os.Stat(state); err != nil {
		t.Errorf("a user's state: %v", err)
	}
}

// leftovers are paths that were not there before, and dpkg's own are not counted
// before a purge.
func leftovers(t *testing.T, before map[string]bool, files []string) []string {
	t.Helper()
	var out []string
	for p := range paths(t) {
		if !before[p] && !strings.HasPrefix(p, "/var/lib/dpkg/") {
			out = append(out, p)
		}
	}
	for _, p := range files {
		if _, err := os.Lstat(p); err == nil && !before[p] && p != "/." {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
