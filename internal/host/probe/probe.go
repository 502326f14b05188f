// Package probe reads what this host's kernel offers, for `agentos doctor` and
// for the record of each run, and computes what isolation a run really gets.
//
// State owned: none; reads only, and one child in a new user namespace that ends
// at once. Imports: x/sys. Imported by: the daemon.
// Lock order: none. Invariants: what can't be found out is said to be unknown,
// never assumed; Facts and Strength are pure functions of what Read found, so a
// report can be rebuilt; the verdict is never better than its worst layer.
// Tests: probe_test.go, read_linux_test.go. Spec: OSA-09.
package probe

import (
	"fmt"
	"strings"
)

// State classifies a fact or a layer.
type State string

// The states. Info judges nothing.
const (
	OK      State = "ok"
	Reduced State = "reduced"
	Absent  State = "absent"
	Unsafe  State = "unsafe"
	Info    State = "info"
)

// Fact is one line about this host.
type Fact struct {
	Name   string
	State  State
	Value  string // short
	Detail string // what it means, where that isn't plain
	Next   string // what to do about it, unless State is OK or Info
}

// Raw is what Read found. Empty strings and -1 mean that it could not be found
// out.
type Raw struct {
	Release, Arch, Distribution string
	Cores                       int
	Memory                      uint64 // bytes
	Virtual                     string // "virtual machine", "container", ""
	Init                        string // name of process 1
	Systemd, Journal            bool
	LandlockABI                 int // 0: none
	SignalFix                   bool
	Seccomp, UserNotify         bool
	NoNewPrivs                  bool
	UserNS                      string // "" works, else why not
	AppArmorUserNS              int    // kernel.apparmor_restrict_unprivileged_userns
	Overlay, Btrfs, IDMap       bool
	Cgroup                      string // "v2", "hybrid", "v1", ""
	Controllers, ControllersV1  []string
	LSM                         string
	UnprivBPF, Ptrace, IOURing  int // sysctl values
	PidfdOpen, CloseRange       bool
}

// Layer is one means of isolation as it is on this host.
type Layer struct {
	Name   string
	State  State
	Detail string
}

// Isolation is what a run gets.
type Isolation struct {
	Layers  []Layer
	Verdict string // full, reduced, unsafe
	Summary string // one sentence
}

// Lines renders the layers, one line each, for a record.
func (i Isolation) Lines() []string {
	out := make([]string, 0, len(i.Layers))
	for _, l := range i.Layers {
		out = append(out, fmt.Sprintf("%s: %s: %s", l.Name, l.State, l.Detail))
	}
	return out
}

// Strength computes what isolation a run gets when it is started by root or by
// an ordinary user.
func (r Raw) Strength(root bool) Isolation {
	i := Isolation{Layers: []Layer{
		identity(root), r.privileges(), r.landlock(), r.seccomp(), r.descriptors(),
		{"end of a run", OK, "process group, pidfd and parent-death signal"},
		{"control groups", Info, "not for the built-in agent, whose parts have limits of their own; `agentos run` uses what controllers there are"},
		{"namespaces", Info, "not for the built-in agent, which opens nothing; `agentos run` makes them for the program that it wraps"},
	}}
	var weak, missing []string
	for _, l := range i.Layers {
		switch l.State {
		case Reduced:
			weak = append(weak, l.Name)
		case Unsafe, Absent:
			missing = append(missing, l.Name)
		}
	}
	switch {
	case len(missing) > 0:
		i.Verdict, i.Summary = "unsafe", "runs are refused on this host: no "+strings.Join(missing, ", no ")
	case len(weak) > 0:
		i.Verdict, i.Summary = "reduced", "runs are isolated, but weaker than this version can: "+strings.Join(weak, ", ")
	default:
		i.Verdict, i.Summary = "full", "runs get every layer that this version has"
	}
	return i
}

func identity(root bool) Layer {
	if root {
		return Layer{"identity", OK, "shim, loop and each tool run under users of their own"}
	}
	return Layer{"identity", Reduced, "same user: the loop and its tools run under your own UID"}
}

func (r Raw) privileges() Layer {
	if !r.NoNewPrivs {
		return Layer{"privileges", Unsafe, "the kernel has no no_new_privs"}
	}
	return Layer{"privileges", OK, "no_new_privs, no capability, not dumpable, no core, no file grows"}
}

// landlockGaps are the things below an ABI that only the syscall filter stops.
func (r Raw) landlockGaps() []string {
	var out []string
	for _, g := range []struct {
		abi  int
		what string
	}{{3, "truncation"}, {4, "tcp"}, {5, "device ioctl"}, {6, "signals and abstract sockets"}, {9, "pathname sockets"}, {10, "udp"}} {
		if r.effectiveABI() < g.abi {
			out = append(out, g.what)
		}
	}
	return out
}

// effectiveABI is what host/confine uses: without the fix of signal scoping an
// ABI of 6 or more counts as 5.
func (r Raw) effectiveABI() int {
	if r.LandlockABI >= 6 && !r.SignalFix {
		return 5
	}
	return r.LandlockABI
}

func (r Raw) landlock() Layer {
	abi := r.effectiveABI()
	if abi < 1 {
		return Layer{"landlock", Unsafe, "the kernel has none"}
	}
	l := Layer{"landlock", OK, fmt.Sprintf("ABI %d: files by allow list", abi)}
	if gaps := r.landlockGaps(); len(gaps) > 0 {
		l.Detail += "; left to the syscall filter: " + strings.Join(gaps, ", ")
	}
	if abi < 6 { // then one layer stands where there should be two
		l.State = Reduced
	}
	return l
}

func (r Raw) seccomp() Layer {
	if !r.Seccomp {
		return Layer{"syscall filter", Unsafe, "the kernel has no seccomp filters"}
	}
	return Layer{"syscall filter", OK, "allow list on all threads; no socket, no new descriptor for the loop"}
}

func (r Raw) descriptors() Layer {
	if !r.CloseRange {
		return Layer{"descriptors", Unsafe, "the kernel has no close_range, so inherited descriptors could leak"}
	}
	return Layer{"descriptors", OK, "each process gets exactly the listed ones, and an empty environment"}
}
