//go:build linux

package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"agentos/internal/execution/tool/catalog"
)

func TestNPUInspect(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"sys/devices/pci0/accel/accel0/dev": "261:0\n", "sys/devices/pci0/vendor": "0x8086\n", "sys/devices/pci0/device": "0x7d1d\n",
		"sys/bus/pci/drivers/intel_vpu/bind": "", "sys/module/intel_vpu/version": "1.2\x1b[m\n",
		"sys/class/drm/card0/x": "", "sys/class/drm/version": "drm",
		"usr/lib/libcalrt-linux-x86_64.so": "", "usr/lib/libze_intel_npu.so.1": "", "usr/lib/libcudart.so": "", "usr/lib/libQnnHtp.txt": "",
		"dev/accel/accel1": "a file, no device",
	})
	link := func(to, at string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, at)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, to), filepath.Join(root, at)); err != nil {
			t.Fatal(err)
		}
	}
	link("sys/devices/pci0/accel/accel0", "sys/class/accel/accel0")
	link("sys/devices/pci0", "sys/devices/pci0/accel/accel0/device")
	link("sys/bus/pci/drivers/intel_vpu", "sys/devices/pci0/driver")
	link("sys/module/intel_vpu", "sys/bus/pci/drivers/intel_vpu/module")
	link("usr/lib", "lib")
	for i, p := range []string{"dev/accel/accel0", "dev/calculet3", "dev/null0"} {
		at := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mknod(at, unix.S_IFCHR|0o600, int(unix.Mkdev(1, uint32(3+i)))); err != nil {
			t.Fatal(err)
		}
	}
	var got npuDoc
	if r := callTool(t, fixture(root), catalog.NPUInspect, `{}`, &got); r.Status != "ok" || r.Truncated != nil {
		t.Fatalf("%+v", r)
	}
	want := npuDoc{
		Count:   2,
		Nodes:   []nodeDoc{{"/dev/accel/accel0", "accel", 1, 3}, {"/dev/calculet3", "calculet", 1, 4}},
		Devices: []deviceDoc{{"accel", "accel0", "0x8086", "0x7d1d", "intel_vpu", "intel_vpu"}},
		Modules: []moduleDoc{{"intel_vpu", "1.2\ufffd[m"}},
		Libraries: []libraryDoc{
			{"libcalrt-linux-x86_64.so", "/usr/lib/libcalrt-linux-x86_64.so", "calculet"},
			{"libze_intel_npu.so.1", "/usr/lib/libze_intel_npu.so.1", "intel_npu"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(npuDoc{})); diff != "" {
		t.Error(diff)
	}
}

func TestNPUInspectNothing(t *testing.T) {
	t.Parallel()
	var got npuDoc
	r := callTool(t, fixture(t.TempDir()), catalog.NPUInspect, `{}`, &got)
	if r.Status != "ok" || got.Count != 0 {
		t.Errorf("%+v", r)
	}
}

func TestNPUInspectMany(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("sys/class/accel/accel%d/x", i)] = ""
		files[fmt.Sprintf("usr/lib/libQnn%d.so", i)] = ""
	}
	var got npuDoc
	r := callTool(t, fixture(tree(t, files)), catalog.NPUInspect, `{}`, &got)
	if diff := cmp.Diff([]string{"/devices", "/libraries"}, r.Truncated); diff != "" {
		t.Error(diff)
	}
	if len(got.Devices) != maxDevices || len(got.Libraries) != maxLibs {
		t.Errorf("%d devices, %d libraries", len(got.Devices), len(got.Libraries))
	}
}
