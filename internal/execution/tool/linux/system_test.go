//go:build linux

package linux

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"agentos/internal/execution/tool/catalog"
)

const psi = "some avg10=1.50 avg60=0.25 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"

func stat(pid int, comm string, ticks, start, pages uint64) string {
	return fmt.Sprintf("%d (%s) S 1 1 1 0 -1 4194560 0 0 0 0 %d 1 0 0 20 0 1 0 %d 1000000 %d 18446744073709551615 1 1 0 0 0\n",
		pid, comm, ticks-1, start, pages)
}

func systemFiles() map[string]string {
	return map[string]string{
		"proc/uptime": "1234.56 99.0\n", "proc/loadavg": "0.10 0.20 0.30 1/234 5678\n",
		"proc/meminfo":      "MemTotal:       2048 kB\nMemFree:        1024 kB\nMemAvailable:   1536 kB\nSwapTotal: 0 kB\nHugePages_Total:       0\n",
		"proc/pressure/cpu": psi, "proc/pressure/memory": psi, "proc/pressure/io": psi,
		"proc/self/mountinfo": "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" +
			"23 22 0:5 / /proc rw - proc proc rw\n" +
			"24 22 0:30 / /net rw - nfs4 server:/x rw\n" +
			"25 22 0:31 / /fuse rw - fuse.sshfs x rw\n" +
			"26 22 8:1 /sub /bind/longer rw - ext4 /dev/sda1 rw\n" +
			`27 22 8:2 / /with\040space\011tab ro - xfs /dev/sdb rw` + "\n" +
			"28 22 0:40 / /twice rw - tmpfs a rw\n29 28 0:41 / /twice rw - tmpfs b rw\n",
		"etc/os-release": "NAME=\"Test OS\"\nID=test\nVERSION_ID='9'\nPRETTY_NAME=\"Test OS 9 \x1b[1m\"\nSECRET=x\n",
		"proc/1/stat":    stat(1, "init", 100, 5, 10), "proc/1/status": "Name:\tinit\nUid:\t0\t0\t0\t0\n",
		"proc/20/stat": stat(20, "a) R (b\n\x1b", 1000, 50, 20), "proc/20/status": "Name:\tx\nUid:\t1000\t0\t0\t0\n",
		"proc/21/stat": stat(21, "reused", 9000, 60, 30),
		"proc/22/stat": "22 (broken", "proc/23/stat": stat(99, "liar", 10, 1, 1),
	}
}

func TestSystemInspect(t *testing.T) {
	t.Parallel()
	root := tree(t, systemFiles())
	h := fixture(root)
	wait := h.Pause
	h.Pause = func(ctx context.Context, d time.Duration) error { // the machine goes on meanwhile
		write(t, root+"/proc/20/stat", stat(20, "a) R (b\n\x1b", 1050, 50, 20))
		write(t, root+"/proc/21/stat", stat(21, "reused", 9900, 61, 30)) // another process by now
		return wait(ctx, d)
	}
	var got systemDoc
	if r := callTool(t, h, catalog.SystemInspect, `{"processes":3}`, &got); r.Status != "ok" {
		t.Fatalf("%+v", r)
	}
	u := func(v uint64) *uint64 { return &v }
	uid := func(v uint32) *uint32 { return &v }
	page := uint64(os.Getpagesize())
	line := &stallDoc{1.5, 0.25, 0, 123}
	res := &resourceDoc{line, &stallDoc{0, 0, 0, 7}}
	m := func(point, fstype string, ro bool) mountDoc {
		return mountDoc{point, fstype, 4096000, 600 * 4096, 300 * 4096, 50, 20, ro}
	}
	want := systemDoc{
		Kernel: &kernelDoc{"Linux", "6.1.0-test", "#1 SMP", "x86_64"}, Uptime: &uptimeDoc{1234.56}, Load: &loadDoc{0.1, 0.2, 0.3},
		Pressure: &pressureDoc{res, res, res},
		Memory:   &memoryDoc{Total: u(2048 << 10), Available: u(1536 << 10), Free: u(1024 << 10), SwapTotal: u(0)},
		Filesystems: &filesystemsDoc{Mounts: []mountDoc{
			m("/", "ext4", false), m("/twice", "tmpfs", false), m("/with space\ufffdtab", "xfs", true),
		}, Skipped: 5},
		OS: &osDoc{"test", "9", "Test OS", "Test OS 9 \ufffd[1m"},
		Processes: &processesDoc{3, 1000, []processDoc{
			{20, "a) R (b\ufffd\ufffd", uid(1000), 50, 20 * page}, {21, "reused", nil, 0, 30 * page}, {1, "init", uid(0), 0, 10 * page},
		}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(filesystemsDoc{})); diff != "" {
		t.Error(diff)
	}
}

// A section whose source is malformed, huge, absent or not a file is reported as
// unavailable with a reason; the others still come.
func TestSystemInspectBadSources(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ section, path, content string }{
		"load text":       {"load", "proc/loadavg", "a b c"},
		"load short":      {"load", "proc/loadavg", "1"},
		"load nan":        {"load", "proc/loadavg", "NaN 0 0"},
		"uptime text":     {"uptime", "proc/uptime", "soon"},
		"uptime infinite": {"uptime", "proc/uptime", "Inf 1"},
		"uptime huge":     {"uptime", "proc/uptime", strings.Repeat("1", 5000)},
		"memory text":     {"memory", "proc/meminfo", "MemTotal: much"},
		"memory empty":    {"memory", "proc/meminfo", ""},
		"memory huge":     {"memory", "proc/meminfo", "MemTotal: 17179869184000 kB\n"},
		"pressure huge":   {"pressure", "proc/pressure/io", "some avg10=0 avg60=0 avg300=0 total=18446744073709551615\n"},
		"pressure nan":    {"pressure", "proc/pressure/io", "some avg10=NaN avg60=0 avg300=0 total=0\n"},
		"pressure text":   {"pressure", "proc/pressure/io", "some x\n"},
		"mounts short":    {"filesystems", "proc/self/mountinfo", "1 2 3\n"},
		"mounts relative": {"filesystems", "proc/self/mountinfo", "22 1 8:1 / x rw - ext4 a rw\n"},
		"mounts huge":     {"filesystems", "proc/self/mountinfo", strings.Repeat("x", maxMountinfo+1)},
		"os huge":         {"os", "etc/os-release", strings.Repeat("x", 70<<10)},
	} {
		files := systemFiles()
		files[c.path] = c.content
		var got systemDoc
		callTool(t, fixture(tree(t, files)), catalog.SystemInspect, `{"sections":["kernel","`+c.section+`"]}`, &got)
		if got.Kernel == nil || len(got.Unavailable) != 1 || got.Unavailable[0].Section != c.section {
			t.Errorf("%s: %+v", name, got)
		}
	}
	var got systemDoc
	h := fixture(t.TempDir()) // nothing there at all
	callTool(t, h, catalog.SystemInspect, `{}`, &got)
	if len(got.Unavailable) != 7 || got.Kernel == nil {
		t.Errorf("empty machine: %+v", got)
	}
}

// Figures beyond what JSON numbers hold are capped, not wrapped or garbled.
func TestHugeFigures(t *testing.T) {
	t.Parallel()
	h := fixture(tree(t, systemFiles()))
	h.Statfs = func(_ string, st *unix.Statfs_t) error {
		*st = unix.Statfs_t{Frsize: 4096, Blocks: 1 << 62, Bfree: 1, Bavail: 1 << 63, Files: ^uint64(0), Ffree: 5}
		return nil
	}
	write(t, h.Root+"/proc/20/stat", stat(20, "x", 5, 5, 1<<51))
	var got systemDoc
	callTool(t, h, catalog.SystemInspect, `{"sections":["filesystems","processes"]}`, &got)
	if m := got.Filesystems.Mounts[0]; m.Size != maxSafe || m.Used != maxSafe || m.Available != maxSafe || m.Inodes != maxSafe || m.InodesFree != 5 {
		t.Errorf("%+v", m)
	}
	if got.Processes.Hottest[0].RSS != maxSafe {
		t.Errorf("%+v", got.Processes)
	}
}

func TestFilesystemsThatHang(t *testing.T) {
	t.Parallel()
	h := fixture(tree(t, systemFiles()))
	release := make(chan struct{})
	defer close(release)
	h.Statfs = func(path string, st *unix.Statfs_t) error {
		if path == "/twice" {
			<-release
		}
		st.Blocks = 1
		return nil
	}
	var got systemDoc
	callTool(t, h, catalog.SystemInspect, `{"sections":["filesystems"]}`, &got)
	if f := got.Filesystems; f == nil || len(f.Mounts) != 1 || f.Unanswered != 2 {
		t.Errorf("%+v", got.Filesystems)
	}
}

func TestManyMountsAndProcesses(t *testing.T) {
	t.Parallel()
	files := systemFiles()
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "%d 1 8:%d / /%s/%d rw - ext4 /dev/x rw\n", i, i, strings.Repeat("m", 2000), i)
	}
	files["proc/self/mountinfo"] = b.String()[:strings.LastIndexByte(b.String()[:maxMountinfo-10], '\n')+1]
	for i := range 200 {
		files[fmt.Sprintf("proc/%d/stat", 100+i)] = stat(100+i, strings.Repeat("\xff", 3000), 5, 5, 5)
	}
	var got systemDoc
	r := callTool(t, fixture(tree(t, files)), catalog.SystemInspect, `{"processes":50}`, &got)
	if len(got.Filesystems.Mounts) >= maxMounts || len(got.Filesystems.Mounts) < 10 || len(got.Processes.Hottest) != 50 {
		t.Errorf("%d mounts, %d processes", len(got.Filesystems.Mounts), len(got.Processes.Hottest))
	}
	if len(r.Truncated) == 0 || r.Truncated[0] != "/filesystems/mounts" {
		t.Errorf("truncated %v", r.Truncated)
	}
}

// A deadline that passes while waiting ends the call with a result that says so.
func TestDeadlineAndCancel(t *testing.T) {
	t.Parallel()
	h := fixture(tree(t, systemFiles()))
	h.Interval, h.Pause = time.Hour, pause
	d := descriptor(t, catalog.SystemInspect)
	d.Deadline = 20 * time.Millisecond
	if r := Run(t.Context(), h, d, []byte(`{}`)); r.Status != "error" || !strings.Contains(r.Error, "deadline") {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{catalog.SystemInspect, catalog.NPUInspect} {
		if r := Run(ctx, h, descriptor(t, name), []byte(`{}`)); r.Status != "error" || !strings.Contains(r.Error, "cancelled") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Files that could hold secrets are never opened: they are FIFOs here, on which
// an open would be refused with a reason in the result, and directories that the
// listing would show.
func TestReadsNoSecrets(t *testing.T) {
	t.Parallel()
	root := tree(t, systemFiles())
	for _, f := range []string{"environ", "cmdline"} {
		write(t, filepath.Join(root, "proc/20", f), "SECRET-CANARY")
	}
	write(t, filepath.Join(root, "etc/os-release.d"), "SECRET-CANARY")
	r := callTool(t, fixture(root), catalog.SystemInspect, `{}`, nil)
	if strings.Contains(string(r.Data), "CANARY") {
		t.Error("canary in the result")
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte(stat(7, "x", 5, 5, 5)))
	f.Add([]byte("1 (a) b) S 1"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseStat(b)
		if err == nil && (p.pid < 1 || p.ticks > 1<<53 || p.rss > 1<<52) {
			t.Errorf("%q: %+v", b, p)
		}
	})
}

func FuzzMount(f *testing.F) {
	f.Add([]byte(`27 22 8:2 / /with\040space ro shared:1 - xfs /dev/sdb rw`))
	f.Add([]byte(" - "))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseMount(b); err == nil && (m.point[0] != '/' || m.fstype == "") {
			t.Errorf("%q: %+v", b, m)
		}
	})
}
