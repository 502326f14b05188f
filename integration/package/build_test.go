//go:build linux

package deb

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestVersion: what git says becomes a version that Debian sorts rightly.
func TestVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"v1.2.3": "1.2.3-1", "v1.3.0-rc1": "1.3.0~rc1-1", "1.2.3": "1.2.3-1",
		"v1.2.3-4-gabc1234": "1.2.3+4.gabc1234-1", "v1.3.0-rc1-4-gabc1234-dirty": "1.3.0~rc1+4.gabc1234.dirty-1",
		"v1.2.3-dirty": "1.2.3+dirty-1", "abc1234": "0~20231114221320.abc1234-1", "1234567-dirty": "0~20231114221320.1234567.dirty-1",
		"unknown": "0~20231114221320.unknown-1", oldVersion: oldDeb, newVersion: newDeb,
	} {
		out, err := exec.Command("sh", root+"/packaging/version.sh", in, "1700000000").Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"a b", "v1/2", "$(id)", "v1:2"} {
		if out, err := exec.Command("sh", root+"/packaging/version.sh", in, "1700000000").Output(); err == nil {
			t.Errorf("%q is version %q", in, out)
		}
	}
}

// tree copies the sources at root to dir, without what git and make keep there.
func tree(t *testing.T, root, dir string) string {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		switch {
		case rel == ".git" || rel == "bin" || rel == "build":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no regular file", rel)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// build runs make deb in a copy of the tree and gives the package's path.
func build(t *testing.T, dir, umask, version string, env ...string) string {
	t.Helper()
	env = append(env, "SOURCE_DATE_EPOCH=1700000000", "GOFLAGS=",
		"GOCACHE="+strings.TrimSpace(sh(t, nil, "go", "env", "GOCACHE")), "GOMODCACHE="+strings.TrimSpace(sh(t, nil, "go", "env", "GOMODCACHE")))
	out := sh(t, env, "sh", "-c", `umask "$1" && make -s -C "$2" deb VERSION="$3"`, "sh", umask, dir, version)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// reproducible: another folder, umask, time zone, language and home give the
// same bytes.
func reproducible(t *testing.T, src, one string) {
	two := build(t, tree(t, src, filepath.Join(t.TempDir(), "a", "longer", "path")), "077", oldVersion,
		"TZ=Pacific/Kiritimati", "LC_ALL=C.UTF-8", "HOME="+t.TempDir(), "AGENTOS_STATE_DIR=/nowhere", "USER=other")
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		for _, f := range []string{one, two} {
			t.Logf("%s\n%s", f, sh(t, nil, "sh", "-c", `dpkg-deb -c "$1"; dpkg-deb --ctrl-tarfile "$1" | tar -xO ./md5sums`, "sh", f))
		}
		t.Error("two builds of the same source differ")
	}
}

// contents: root owns every file, nobody else may write one, every program is
// static and knows no path of the machine that built it.
func contents(t *testing.T, deb, src string) string {
	for line := range strings.Lines(sh(t, nil, "dpkg-deb", "-c", deb)) {
		f := strings.Fields(line)
		if f[1] != "root/root" || (f[0] != "drwxr-xr-x" && f[0] != "-rwxr-xr-x" && f[0] != "-rw-r--r--") || f[3] != "2023-11-14" {
			t.Errorf("%s", line)
		}
	}
	dir := t.TempDir()
	sh(t, nil, "dpkg-deb", "-x", deb, dir)
	progs := []string{"usr/bin/agentos"}
	for _, p := range []string{"agentosd", "agentos-launcher", "agentos-loop", "agentos-probe", "agentos-shim", "agentos-tool"} {
		progs = append(progs, "usr/libexec/agentos/"+p)
	}
	var found []string
	for _, p := range progs {
		file := filepath.Join(dir, p)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		found = append(found, p)
		if bytes.Contains(b, []byte(src)) {
			t.Errorf("%s holds the path %s", p, src)
		}
		e, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if libs, err := e.ImportedLibraries(); err != nil || len(libs) > 0 || e.Section(".interp") != nil {
			t.Errorf("%s is not static: %v %v", p, libs, err)
		}
	}
	if d := cmp.Diff(progs, found); d != "" {
		t.Error(d)
	}
	var exec []string
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			rel, _ := filepath.Rel(dir, p)
			exec = append(exec, rel)
		}
		return err
	})
	if len(exec) != len(progs) {
		t.Errorf("executable files: %v", exec)
	}
	for _, f := range []string{"copyright", "README", "README.Debian", "changelog.Debian.gz", "config.reference.yaml", "third-party-licenses.gz"} {
		if st, err := os.Stat(filepath.Join(dir, "usr/share/doc/agentos", f)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	fields := sh(t, nil, "dpkg-deb", "-f", deb, "Version", "Architecture", "Depends", "Pre-Depends")
	if want := "Version: " + oldDeb + "\nArchitecture: " + strings.TrimSpace(sh(t, nil, "dpkg", "--print-architecture")) + "\n"; fields != want {
		t.Errorf("fields %q, want %q", fields, want)
	}
	return dir
}

// pages: every command has a page, and groff has nothing to complain of.
func pages(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "usr/share/man/man1/*.1.gz"))
	if err != nil || len(files) < 20 {
		t.Fatalf("pages: %v %v", files, err)
	}
	for _, f := range files {
		cmd := exec.Command("man", "--warnings", "-l", f)
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MAN_KEEP_FORMATTING=")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		name := strings.TrimSuffix(filepath.Base(f), ".1.gz")
		if err := cmd.Run(); err != nil || errs.Len() > 0 || !strings.Contains(out.String(), name) || !strings.Contains(out.String(), "SYNOPSIS") {
			t.Errorf("%s: %v\n%s\n%.300s", name, err, &errs, &out)
		}
	}
}

// completions: each shell takes its script, and bash answers with a command.
func completions(t *testing.T, dir string) {
	bash := filepath.Join(dir, "usr/share/bash-completion/completions/agentos")
	sh(t, nil, "bash", "-n", bash)
	if out := sh(t, nil, "bash", "--norc", "-c", `. "$1" && complete -p agentos`, "bash", bash); !strings.Contains(out, "-F __start_agentos agentos") {
		t.Errorf("bash: %s", out)
	}
	sh(t, nil, "zsh", "-n", filepath.Join(dir, "usr/share/zsh/vendor-completions/_agentos"))
	sh(t, nil, "fish", "-n", filepath.Join(dir, "usr/share/fish/vendor_completions.d/agentos.fish"))
}

func lint(t *testing.T, deb string) {
	cmd := exec.Command("lintian", "--no-cfg", "--allow-root", "--fail-on", "error", deb)
	out, err := cmd.CombinedOutput()
	t.Logf("lintian:\n%s", out)
	if err != nil {
		t.Errorf("lintian: %v", err)
	}
}
