// Package sandboxplan is the plan of a wrapped agent's sandbox, as data: what it
// sees, who it is, what it may use. execution/sandbox makes plans, host/jail
// carries them out, `--explain` prints them, cmd/agentos-probe tries them. Nothing here touches the machine.
//
// State owned: none. Imports: lib/fault. Imported by: execution/sandbox,
// host/jail, api/launchwire, control, cli/run, cmd/agentos-launcher,
// cmd/agentos-probe. Portable.
// Invariants: what a plan does not list is absent (INV-02, C-10); Check refuses
// what could not be enforced or would widen the sandbox, and both sides of the
// launch wire call it, because the launcher may be root and its caller isn't.
// Formats: docs/spec/sandbox-plan.md and sandbox-probe.md. Tests: check_test.go,
// probe_test.go, FuzzCheck, FuzzLimits, FuzzProbe.
package sandboxplan

// Version is the plan format.
const Version = 1

// Strength says which isolation a run asks for. A host that can't give it
// refuses the run; nothing falls back by itself.
type Strength string

// The strengths.
const (
	Full         Strength = "full"          // namespaces, own UID, cgroups, Landlock, seccomp (root or installed)
	Rootless     Strength = "rootless"      // the same in a user namespace, as the caller's UID
	LandlockOnly Strength = "landlock-only" // no namespaces: Landlock, seccomp, rlimits
)

// Plan is one sandbox.
type Plan struct {
	Version  int      `json:"version"`
	Run      string   `json:"run"`
	Strength Strength `json:"strength"`

	Command []string `json:"command"` // argv; [0] is looked up in the sandbox's PATH
	Env     []string `json:"env"`     // the whole environment, NAME=value
	Dir     string   `json:"dir"`     // working directory inside
	TTY     bool     `json:"tty"`     // a private terminal instead of three pipes
	Rows    uint16   `json:"rows,omitempty"`
	Cols    uint16   `json:"cols,omitempty"`

	Identity Identity `json:"identity"`
	Hostname string   `json:"hostname"`
	Mounts   []Mount  `json:"mounts"` // in order; parents before children
	Files    []File   `json:"files"`  // made in the private root, read only
	Limits   Limits   `json:"limits"`

	// Nested allows the agent to make namespaces of its own (agents that bring
	// bubblewrap). Off: clone and unshare with namespace flags are refused.
	Nested bool `json:"nested,omitempty"`
}

// Identity is who runs inside and whose files they are.
type Identity struct {
	UID, GID           uint32 // inside; never 0
	OwnerUID, OwnerGID uint32 // on disk: writable trees are mapped to it
	User               string // name shown for UID inside
	Home               string // path inside
}

// MountKind says where a mount's content comes from.
type MountKind string

// The kinds.
const (
	Bind   MountKind = "bind"   // of Source, recursively
	Tmpfs  MountKind = "tmpfs"  // private and empty; SizeBytes
	Proc   MountKind = "proc"   // the sandbox's own
	Dev    MountKind = "dev"    // null zero full random urandom tty, private pts and shm
	Folder MountKind = "folder" // an empty folder of the private root: holds children only
	Link   MountKind = "link"   // a symbolic link of the private root to Source
)

// Mount is one thing in the sandbox's view.
type Mount struct {
	Kind      MountKind `json:"kind"`
	Source    string    `json:"source,omitempty"` // on the host, absolute, no symbolic link in it
	Target    string    `json:"target"`           // inside, absolute
	Write     bool      `json:"write,omitempty"`
	Exec      bool      `json:"exec,omitempty"`     // programs may be started from it
	Owned     bool      `json:"owned,omitempty"`    // map the owner's files to the agent (idmapped mount)
	Optional  bool      `json:"optional,omitempty"` // skip if Source does not exist
	SizeBytes int64     `json:"size_bytes,omitempty"`
	Why       string    `json:"why"` // for --explain: "profile claude-code", "--rw", "system"
}

// File is a small synthetic file such as /etc/passwd.
type File struct {
	Path string `json:"path"`
	Data string `json:"data"`
	Why  string `json:"why"`
}

// Limits of a run; 0 means the host's own.
type Limits struct {
	PIDs        int64 `json:"pids"`
	MemoryBytes int64 `json:"memory_bytes"`
	CPUPercent  int64 `json:"cpu_percent"` // of one CPU; 150 is one and a half
	OpenFiles   int64 `json:"open_files"`
	FileBytes   int64 `json:"file_bytes"` // size of one file
	TmpBytes    int64 `json:"tmp_bytes"`
}
