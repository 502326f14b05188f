//go:build linux

package linux

import (
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
