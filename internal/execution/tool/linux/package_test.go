//go:build linux

package linux

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/execution/tool/catalog"
)

const dpkgFixture = `Package: bash
Status: install ok installed
Priority: required
Description: GNU Bourne Again SHell
 Package: notbash
 more
Version: 5.2-1
Architecture: amd64

Package: libc6
Status: install ok installed
Version: 2.36
Architecture: amd64
Description: one

Package: libc6
Status: install reinstreq half-configured
Version: 2.36
Architecture: i386
Description: two

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: all

Package: nostatus
Version: 1

Package: last
Status: install ok installed
Version: 9` // no line end

const descFixture = "%NAME%\nbash\n\n%VERSION%\n5.2.037-1\n\n%DESC%\nThe GNU shell\x1b[1m\n\n%ARCH%\nx86_64\n\n%DEPENDS%\na\nb\n%NAME%\n\n"

func TestPackageQueryFixtures(t *testing.T) {
	t.Parallel()
	dpkg := map[string]string{"var/lib/dpkg/status": dpkgFixture}
	pacman := map[string]string{
		"var/lib/pacman/local/bash-5.2.037-1/desc":               descFixture,
		"var/lib/pacman/local/bash-completion-2.11-3/desc":       strings.ReplaceAll(descFixture, "bash\n\n%V", "bash-completion\n\n%V"),
		"var/lib/pacman/local/ALPM_DB_VERSION":                   "9\n",
		"var/lib/pacman/local/liar-1-1/desc":                     descFixture,
		"var/lib/pacman/local/broken-1-1/desc":                   "%NAME%\n",
		"var/lib/pacman/local/" + strings.Repeat("d", 64) + "/x": "",
	}
	both := map[string]string{"var/lib/dpkg/status": dpkgFixture, "var/lib/pacman/local/bash-5.2.037-1/desc": descFixture}
	read := func(names ...string) []managerState {
		var out []managerState
		for _, n := range names {
			out = append(out, managerState{Name: n, State: "read"})
		}
		return out
	}
	bashDpkg := pkg{"dpkg", "bash", "5.2-1", "installed", "amd64", "GNU Bourne Again SHell"}
	bashPacman := pkg{"pacman", "bash", "5.2.037-1", "installed", "x86_64", "The GNU shell\ufffd[1m"}
	for label, c := range map[string]struct {
		files map[string]string
		name  string
		want  packageDoc
	}{
		"dpkg":        {dpkg, "bash", packageDoc{"bash", true, []pkg{bashDpkg}, read("dpkg")}},
		"two arches":  {dpkg, "libc6", packageDoc{"libc6", true, []pkg{{"dpkg", "libc6", "2.36", "installed", "amd64", "one"}, {"dpkg", "libc6", "2.36", "half-configured, reinstreq", "i386", "two"}}, read("dpkg")}},
		"removed":     {dpkg, "gone", packageDoc{"gone", false, []pkg{{"dpkg", "gone", "1", "config-files", "all", ""}}, read("dpkg")}},
		"no status":   {dpkg, "nostatus", packageDoc{"nostatus", false, []pkg{}, read("dpkg")}},
		"last":        {dpkg, "last", packageDoc{"last", true, []pkg{{"dpkg", "last", "9", "installed", "", ""}}, read("dpkg")}},
		"in a text":   {dpkg, "notbash", packageDoc{"notbash", false, []pkg{}, read("dpkg")}},
		"prefix":      {dpkg, "bas", packageDoc{"bas", false, []pkg{}, read("dpkg")}},
		"pacman":      {pacman, "bash", packageDoc{"bash", true, []pkg{bashPacman}, read("pacman")}},
		"pacman none": {pacman, "zsh", packageDoc{"zsh", false, []pkg{}, read("pacman")}},
		"pacman liar": {pacman, "liar", packageDoc{"liar", false, []pkg{}, read("pacman")}},
		"both":        {both, "bash", packageDoc{"bash", true, []pkg{bashDpkg, bashPacman}, read("dpkg", "pacman")}},
	} {
		var got packageDoc
		r := callTool(t, fixture(tree(t, c.files)), catalog.PackageQuery, `{"name":"`+c.name+`"}`, &got)
		if r.Status != "ok" {
			t.Errorf("%s: %+v", label, r)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", label, diff)
		}
	}
	if r := callTool(t, fixture(tree(t, pacman)), catalog.PackageQuery, `{"name":"broken"}`, nil); r.Status != "unavailable" {
		t.Errorf("broken desc: %+v", r)
	}
	if r := callTool(t, fixture(t.TempDir()), catalog.PackageQuery, `{"name":"bash"}`, nil); r.Status != "unavailable" || r.Next == "" {
		t.Errorf("no manager: %+v", r)
	}
	// One database that can't be read doesn't hide the other.
	both["var/lib/pacman/local/bash-5.2.037-1/desc"] = "x"
	var got packageDoc
	callTool(t, fixture(tree(t, both)), catalog.PackageQuery, `{"name":"bash"}`, &got)
	if len(got.Managers) != 2 || got.Managers[1].State != "failed" || len(got.Packages) != 1 {
		t.Errorf("half readable: %+v", got)
	}
}

// The real dpkg database and dpkg-query agree.
func TestPackageQueryDpkg(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version} ${Architecture} ${binary:Summary}", "dpkg").Output()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.SplitN(string(out), " ", 3)
	found, err := findDpkg(t.Context(), Local(), "dpkg")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]pkg{{"", "dpkg", f[0], "installed", f[1], f[2]}}, found); diff != "" {
		t.Error(diff)
	}
}

func TestParseDpkgHostile(t *testing.T) {
	t.Parallel()
	huge := "Package: " + strings.Repeat("p", maxField+100) + "\nStatus: install ok installed\n\nPackage: a\nStatus: install ok installed\nDescription: " +
		strings.Repeat("\xff", 5000) + "\n\n"
	found, err := parseDpkg(t.Context(), strings.NewReader(huge), "a")
	if err != nil || len(found) != 1 || len(found[0].Summary) > 512 {
		t.Errorf("%v, %v", found, err)
	}
	many := strings.Repeat("Package: a\nStatus: install ok installed\n\n", 1000)
	if found, err := parseDpkg(t.Context(), strings.NewReader(many), "a"); err != nil || len(found) != maxFound {
		t.Errorf("%d, %v", len(found), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := parseDpkg(ctx, strings.NewReader(strings.Repeat("x\n", 10000)), "a"); err == nil {
		t.Error("cancelled: no error")
	}
}

// rpmHost is a host with a real rpm database that holds one package.
func rpmHost(t *testing.T) Host {
	t.Helper()
	dir := t.TempDir()
	spec := filepath.Join(dir, "p.spec")
	write(t, spec, "Name: agentos-probe\nVersion: 1.2\nRelease: 3\nEpoch: 7\nSummary: A\ttab and ü\nLicense: none\nBuildArch: noarch\n%description\nx\n%files\n")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	run("rpmbuild", "-bb", "--define", "_topdir "+dir+"/build", spec)
	run("rpm", "--dbpath", dir+"/db", "--initdb")
	run("rpm", "--dbpath", dir+"/db", "--install", "--justdb", "--nodeps", dir+"/build/RPMS/noarch/agentos-probe-1.2-3.noarch.rpm")
	h := fixture(dir)
	h.RPM, h.RPMDB = "/usr/bin/rpm", dir+"/db"
	return h
}

func TestPackageQueryRPM(t *testing.T) {
	t.Parallel()
	h := rpmHost(t)
	var got packageDoc
	callTool(t, h, catalog.PackageQuery, `{"name":"agentos-probe"}`, &got)
	want := packageDoc{"agentos-probe", true, []pkg{{"rpm", "agentos-probe", "7:1.2-3", "installed", "noarch", "A\ufffdtab and ü"}}, []managerState{{Name: "rpm", State: "read"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Exactly that name: rpm itself would also match name-version.
	for _, name := range []string{"absent", "agentos-probe-1.2", "agentos-probe-1.2-3"} {
		var got packageDoc
		callTool(t, h, catalog.PackageQuery, `{"name":"`+name+`"}`, &got)
		if got.Installed || len(got.Packages) != 0 || got.Managers[0].State != "read" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := os.WriteFile(h.RPMDB+"/rpmdb.sqlite", bytes.Repeat([]byte("x"), 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := callTool(t, h, catalog.PackageQuery, `{"name":"agentos-probe"}`, nil); r.Status != "unavailable" {
		t.Errorf("corrupt database: %+v", r)
	}
}

func FuzzDpkg(f *testing.F) {
	f.Add([]byte(dpkgFixture))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, _ := parseDpkg(t.Context(), bytes.NewReader(b), "bash")
		checkFound(t, found, "bash")
	})
}

func FuzzRPM(f *testing.F) {
	f.Add([]byte("bash\t1:2-3\tnoarch\tshell\nx\ty\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, _, _ := parseRPM(bytes.NewReader(b), "bash")
		checkFound(t, found, "bash")
	})
}

func FuzzDesc(f *testing.F) {
	f.Add([]byte(descFixture))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseDesc(bytes.NewReader(b)); err == nil {
			checkFound(t, []pkg{p}, p.Name)
		}
	})
}

func checkFound(t *testing.T, found []pkg, name string) {
	t.Helper()
	if len(found) > maxFound {
		t.Errorf("%d packages", len(found))
	}
	for _, p := range found {
		if p.Name != name || p.Status == "" || len(p.Version) > 256 || len(p.Summary) > 512 || strings.ContainsAny(p.Version+p.Summary, "\x1b\n") {
			t.Errorf("%+v", p)
		}
	}
}
