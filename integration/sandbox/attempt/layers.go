//go:build linux

package attempt

import "slices"

// Layers says which parts of a running sandbox to put on.
type Layers struct {
	PID       int // of a process in the sandbox, as the host sees it
	UID       int // of the agent
	Names     []string
	Probe     string // path of the program, the same inside and outside
	Workspace string
	ReadOnly  string
	Inside    bool              // the namespaces are taken
	Limits    map[int][2]uint64 // filled in from the sandbox
	Filters   [][]byte          // its syscall filters, newest first, the same
}

// AllLayers lists what can be taken away.
func AllLayers() []string {
	return []string{
		"mount view", "pid namespace", "net namespace", "ipc namespace", "uts namespace",
		"uid", "capabilities", "bounding set", "no_new_privs", "seccomp", "landlock", "cgroup", "rlimit",
	}
}

// Has reports whether a layer is put on.
func (l Layers) Has(name string) bool { return slices.Contains(l.Names, name) }
