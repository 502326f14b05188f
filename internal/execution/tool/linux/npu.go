//go:build linux

package linux

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

type npuDoc struct {
	Count     int          `json:"count"`
	Nodes     []nodeDoc    `json:"nodes"`
	Devices   []deviceDoc  `json:"devices"`
	Modules   []moduleDoc  `json:"modules"`
	Libraries []libraryDoc `json:"libraries"`
	more      []string
}

type nodeDoc struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

type deviceDoc struct {
	Class  string `json:"class"`
	Name   string `json:"name"`
	Vendor string `json:"vendor,omitempty"`
	Device string `json:"device,omitempty"`
	Driver string `json:"driver,omitempty"`
	Module string `json:"module,omitempty"`
}

type moduleDoc struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

type libraryDoc struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Runtime string `json:"runtime"`
}

func (d *npuDoc) lists() []list {
	return []list{listOf("/nodes", &d.Nodes), listOf("/devices", &d.Devices), listOf("/libraries", &d.Libraries)}
}

func (d *npuDoc) cuts() []string { return d.more }

// nodePatterns are the device nodes that accelerator drivers make: a fixed list
// of names to look at (never to open), so that this needs no right on /dev.
var nodePatterns = []struct {
	kind, format string
	from, to     int // numbers in the name; a format without a number is one name
}{
	{"accel", "/dev/accel/accel%d", 0, 63}, // Documentation/accel: amdxdna, ivpu, qaic, habanalabs, rocket
	{"calculet", "/dev/calculet%d", 0, 15},
	{"drm", "/dev/dri/renderD%d", 128, 191},
	{"nvidia", "/dev/nvidia%d", 0, 31},
	{"amd_compute", "/dev/kfd", 0, 0},
	{"habana", "/dev/hl%d", 0, 15},
	{"hailo", "/dev/hailo%d", 0, 15},
	{"edgetpu", "/dev/apex_%d", 0, 15},
	{"rknpu", "/dev/rknpu", 0, 0},
	{"ascend", "/dev/davinci%d", 0, 15},
	{"neuron", "/dev/neuron%d", 0, 31},
	{"tenstorrent", "/dev/tenstorrent/%d", 0, 31},
	{"wsl", "/dev/dxg", 0, 0},
}

var npuModules = []string{
	"calculet", "calculet_pcie", "intel_vpu", "amdxdna", "amdgpu", "nvidia", "i915", "xe", "qaic", "habanalabs", "rocket",
	"rknpu", "hailo_pci", "apex", "gasket", "ethosu", "neuron", "tenstorrent",
}

// npuClasses are the kernel's device classes and the prefix of the names in them
// that are compute interfaces.
var npuClasses = []struct{ class, prefix string }{{"accel", "accel"}, {"drm", "renderD"}, {"calculet", ""}}

var npuLibraries = []struct{ prefix, runtime string }{
	{"libcalrt", "calculet"}, {"libze_intel_npu", "intel_npu"}, {"libze_intel_gpu", "intel_gpu"}, {"libcuda.so", "cuda"},
	{"libamdhip64", "amd_hip"}, {"libhsa-runtime64", "amd_rocm"}, {"libxrt_core", "amd_xdna"}, {"libxrt_driver_xdna", "amd_xdna"},
	{"librknnrt", "rockchip"}, {"libQnn", "qualcomm"}, {"libcdsprpc", "qualcomm"}, {"libhailort", "hailo"},
	{"libedgetpu", "edgetpu"}, {"libascendcl", "ascend"}, {"libnrt.so", "neuron"},
}

const (
	maxClass    = 1024  // entries of a class directory looked at
	maxLibNames = 32768 // entries of a library directory looked at
	maxDevices  = 128
	maxLibs     = 128
)

func inspectNPU(ctx context.Context, h Host) (document, error) {
	d := &npuDoc{Devices: []deviceDoc{}, Modules: []moduleDoc{}, Libraries: []libraryDoc{}}
	d.Nodes = h.npuNodes()
	for _, c := range npuClasses {
		d.readClass(h, c.class, c.prefix)
	}
	for _, m := range npuModules {
		if h.exists("/sys/module/" + m) {
			d.Modules = append(d.Modules, moduleDoc{m, firstLine(h.path("/sys/module/"+m+"/version"), 64)})
		}
	}
	for _, dir := range h.libraryDirs() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d.readLibraries(h, dir)
	}
	interfaces := map[string]bool{}
	for _, n := range d.Nodes {
		interfaces[filepath.Base(n.Path)] = true
	}
	for _, v := range d.Devices {
		interfaces[v.Name] = true
	}
	d.Count = len(interfaces)
	return d, nil
}

func (h Host) npuNodes() []nodeDoc {
	out := []nodeDoc{}
	for _, p := range nodePatterns {
		for i := p.from; i <= p.to; i++ {
			path := p.format
			if strings.Contains(path, "%d") {
				path = fmt.Sprintf(path, i)
			}
			var st unix.Stat_t
			if unix.Lstat(h.path(path), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
				out = append(out, nodeDoc{path, p.kind, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))})
			}
		}
	}
	return out
}

func (d *npuDoc) readClass(h Host, class, prefix string) {
	dir := "/sys/class/" + class
	list, more, err := names(h.path(dir), maxClass)
	if err != nil {
		return // the kernel has no such class
	}
	slices.Sort(list)
	for _, name := range list {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if len(d.Devices) >= maxDevices {
			more = true
			break
		}
		dev := h.path(dir + "/" + name + "/device/")
		d.Devices = append(d.Devices, deviceDoc{
			Class: class, Name: line(name, 64), Vendor: firstLine(dev+"vendor", 16), Device: firstLine(dev+"device", 16),
			Driver: linkBase(dev + "driver"), Module: linkBase(dev + "driver/module"),
		})
	}
	if more {
		d.more = append(d.more, "/devices")
	}
}

func linkBase(path string) string {
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return line(filepath.Base(to), 64)
}

func (d *npuDoc) readLibraries(h Host, dir string) {
	list, more, err := names(h.path(dir), maxLibNames)
	if err != nil {
		return // many of the usual folders don't exist
	}
	slices.Sort(list)
	for _, name := range list {
		for _, l := range npuLibraries {
			if !strings.HasPrefix(name, l.prefix) || !strings.Contains(name, ".so") {
				continue
			}
			if len(d.Libraries) >= maxLibs {
				more = true
				break
			}
			d.Libraries = append(d.Libraries, libraryDoc{line(name, 128), line(dir+"/"+name, 512), l.runtime})
			break
		}
	}
	if more && !slices.Contains(d.more, "/libraries") {
		d.more = append(d.more, "/libraries")
	}
}

// triplet is the multiarch folder name of Debian and its kin, "" where unknown.
func triplet() string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
}

// libraryDirs are the folders that the dynamic linker searches by default and
// those where vendors put their runtimes; links to one of them are left out.
func (h Host) libraryDirs() []string {
	seen := map[string]bool{}
	var out []string
	for _, dir := range []string{
		"/usr/lib/" + triplet(), "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/lib64", "/lib/" + triplet(), "/lib64", "/lib",
		"/usr/lib/wsl/lib", "/opt/calculet/lib", "/opt/rocm/lib", "/opt/xilinx/xrt/lib", "/usr/local/cuda/lib64",
	} {
		dir = filepath.Clean(dir)
		real, err := filepath.EvalSymlinks(h.path(dir))
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		out = append(out, dir)
	}
	return out
}
