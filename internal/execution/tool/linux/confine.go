//go:build linux

package linux

import (
	"os"
	"runtime"
	"slices"

	"agentos/internal/execution/tool"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/lib/fault"
)

// Confine says what one call of the named tool has to touch, from the arguments
// of that call. It opens nothing; it looks at which of the alternatives (package
// managers, library folders) exist. Arguments that don't follow the input schema
// are refused with a fault.
func Confine(h Host, name string, raw []byte) (tool.Confinement, error) {
	args, err := decode(name, raw, catalog.DefaultLimit)
	if err != nil {
		return tool.Confinement{}, err
	}
	switch a := args.(type) {
	case systemArgs:
		return h.confineSystem(a), nil
	case npuArgs:
		return h.confineNPU(), nil
	case packageArgs:
		return h.confinePackage(), nil
	case serviceArgs:
		if _, err := os.Stat(h.Bus); err != nil {
			return tool.Confinement{}, nil // the result will say that there is no bus
		}
		return tool.Confinement{Connect: []string{h.Bus}}, nil
	case journalArgs:
		c := h.program(h.Journalctl)
		c.Read = append(c.Read, h.journalDirs()...)
		c.Read = append(c.Read, "/etc/machine-id")
		return c, nil
	}
	return tool.Confinement{}, fault.New(fault.NotFound, "ask for one of the tools in the catalogue", "find tool %q", name)
}

func (h Host) confineSystem(a systemArgs) tool.Confinement {
	var c tool.Confinement
	for section, paths := range map[string][]string{
		"uptime": {"/proc/uptime"}, "load": {"/proc/loadavg"}, "pressure": {"/proc/pressure"},
		"memory": {"/proc/meminfo"}, "filesystems": {"/proc/self/mountinfo"},
		"os": {"/etc/os-release", "/usr/lib/os-release"},
	} {
		if a.Sections == nil || slices.Contains(a.Sections, section) {
			c.Read = append(c.Read, h.paths(paths...)...)
		}
	}
	slices.Sort(c.Read)
	// The entries of processes can't be listed beforehand.
	c.Procs = a.Sections == nil || slices.Contains(a.Sections, "processes")
	return c
}

func (h Host) paths(list ...string) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = h.path(p)
	}
	return out
}

func (h Host) confineNPU() tool.Confinement {
	// Class entries are links into /sys/devices; nodes and modules are looked at
	// by name, which needs no right.
	c := tool.Confinement{Read: h.paths("/sys/class/accel", "/sys/class/drm", "/sys/class/calculet", "/sys/devices")}
	for _, m := range npuModules {
		if h.exists("/sys/module/" + m + "/version") {
			c.Read = append(c.Read, h.path("/sys/module/"+m+"/version"))
		}
	}
	c.Read = append(c.Read, h.paths(h.libraryDirs()...)...)
	return c
}

func (h Host) confinePackage() tool.Confinement {
	var c tool.Confinement
	if hasRPM(h) {
		c = h.program(h.RPM)
		c.Read = append(c.Read, "/usr/lib/rpm", "/etc/rpm")
		c.Read = append(c.Read, h.rpmDirs()...)
	}
	c.Read = append(c.Read, h.paths(dpkgStatus, pacmanLocal)...)
	return c
}

// program is what a dynamically linked program needs to start: itself, its
// loader, the folders of shared libraries.
func (h Host) program(path string) tool.Confinement {
	return tool.Confinement{Exec: append([]string{path}, loaders()...), Read: sharedLibraries()}
}

// loaders are the dynamic loaders of glibc and musl.
func loaders() []string {
	if runtime.GOARCH == "arm64" {
		return []string{"/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"}
	}
	return []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"}
}

// sharedLibraries are the folders that hold a system program's libraries:
// Debian's multiarch folder, or /usr/lib64, or /usr/lib, in that order.
func sharedLibraries() []string {
	for _, group := range [][]string{
		{"/usr/lib/" + triplet(), "/lib/" + triplet()}, {"/usr/lib64", "/lib64"}, {"/usr/lib", "/lib"},
	} {
		if st, err := os.Stat(group[0]); err == nil && st.IsDir() && triplet() != "" {
			return append(group, "/usr/lib/systemd")
		}
	}
	return nil
}
