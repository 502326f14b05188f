// Package confine locks the calling process down for good: it is the first act
// of our own sister binaries, before they read a byte that somebody else wrote.
//
// State owned: the process's credentials, limits, Landlock domain and seccomp
// filter; nothing in memory. Imports: lib/fault, go-landlock, the tables of
// go-seccomp-bpf, libcap/psx, x/net/bpf, x/sys. Imported by: cmd/agentos-loop, cmd/agentos-shim,
// cmd/agentos-tool. Portable only so far that it compiles: off Linux Apply
// refuses.
//
// Lock order: Apply is called once, from main, before goroutines of ours run.
// Invariants: a step that fails ends in an error, and the caller must exit; no
// step is skipped silently, what this kernel can't enforce is in the Report.
// What is applied is never widened later. No profile can open a socket, so
// connections that a tool needs are made by Apply before the filter closes.
// Every profile and limit is described in docs/spec/confinement.md.
// Tests: confine_linux_test.go (children of the test
// binary), profiles_linux_test.go, FuzzFilter.
// Spec: OSA-02, AOS-17, INV-13.
package confine

import (
	"errors"
	"net"
)

// Profile names a syscall allow list.
type Profile string

// The profiles.
const (
	// Loop reads and writes descriptors that it already has. It can't open,
	// connect, receive descriptors, execute or map executable memory.
	Loop Profile = "loop"
	// Shim is Loop, plus messages that carry descriptors.
	Shim Profile = "shim"
	// Tool is Loop, plus reading the files that Plan.Read lists.
	Tool Profile = "tool"
	// ToolExec is Tool, plus running the binaries that Plan.Exec lists. Apply
	// uses it by itself for a Tool plan with a non-empty Exec.
	ToolExec Profile = "tool-exec"
)

// Plan is what a process may still do after Apply. The zero value of a field
// grants nothing.
type Plan struct {
	Name    string  // the process's name, for errors
	Profile Profile // which syscalls remain
	NonRoot bool    // refuse when a user or group ID of the process is 0

	Read    []string // absolute paths: files, or directories with all beneath
	Exec    []string // absolute paths of binaries and library directories
	Connect []string // absolute paths of Unix stream sockets to connect to now
	Procs   bool     // may read /proc, other processes' public entries included

	// OpenFiles is the limit of descriptor numbers; 0 means 128.
	OpenFiles uint64
	// AllowNoLandlock goes on without Landlock where the kernel has none. Then
	// only file permissions and the syscall filter guard files.
	AllowNoLandlock bool
}

// Report says what holds from now on. It is meant for the audit log.
type Report struct {
	Profile     Profile  `json:"profile"`
	LandlockABI int      `json:"landlock_abi"`           // 0: no Landlock
	NotEnforced []string `json:"not_enforced,omitempty"` // what this kernel can't do, and what covers for it
	Missing     []string `json:"missing,omitempty"`      // listed paths that don't exist: not granted
	Bounding    bool     `json:"bounding_dropped"`       // the capability bounding set is empty
	// Conns are the connections of Plan.Connect by path. The caller owns them.
	Conns map[string]*net.UnixConn `json:"-"`

	// paths pins the inodes that Landlock rules name: a procfs inode that is
	// evicted comes back as another one, and the rule would not match it.
	paths []int
}

// Errors that callers distinguish with errors.Is; Apply returns faults that wrap
// them.
var (
	ErrPlan     = errors.New("confinement plan is not valid")
	ErrRoot     = errors.New("process still has a root user or group id")
	ErrLandlock = errors.New("kernel has no usable landlock")
	ErrSeccomp  = errors.New("seccomp filter not installed")
)
