// Package seccomp makes syscall filters: allow lists with conditions on
// arguments, assembled by our own code, and the list for wrapped agents.
//
// State owned: the filters of the process that calls Install. Imports: the tables
// of go-seccomp-bpf, x/net/bpf, x/sys. Imported by: host/confine (our own sister
// binaries), host/jail (wrapped agents, the launcher). No locks.
// Invariants: a call that is in no part of a filter gets Filter.Else, never an
// allowance; a foreign architecture and x32 are refused; what is installed stays.
// Docs: docs/spec/confinement.md, docs/spec/agent-syscalls.md.
// Tests: seccomp_linux_test.go; host/confine (FuzzFilter) and cmd/agentos-launcher
// (TestCalls) try the lists.
// Spec: AOS-17.
package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// ErrInstall is returned when the kernel does not take a filter.
var ErrInstall = errors.New("kernel refused the syscall filter")

// Install puts f on every thread of the process. It needs no_new_privs or
// CAP_SYS_ADMIN and can't be undone.
func Install(f Filter) error {
	raw, err := f.Assemble()
	if err != nil {
		return fmt.Errorf("assemble syscall filter: %w", err)
	}
	return InstallProgram(raw)
}

// InstallProgram is Install for what Assemble made.
func InstallProgram(raw []bpf.RawInstruction) error {
	if len(raw) == 0 {
		return fmt.Errorf("%w: it is empty", ErrInstall)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, ins := range raw {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	prog := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// The return value matters: without an errno it is the thread that failed.
	tid, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(prog)))
	runtime.KeepAlive(filter)
	if e != 0 {
		return fmt.Errorf("%w: %w", ErrInstall, e)
	}
	if tid != 0 {
		return fmt.Errorf("%w: thread %d has another filter", ErrInstall, tid)
	}
	return nil
}

// Filter is an allow list of calls by their names.
type Filter struct {
	Allow  []string // whatever the arguments are
	When   []Rule   // when the arguments fit; otherwise EPERM
	Refuse []string // EPERM
	Absent []string // ENOSYS: callers use an older call
	// Else is for what is in no list, numbers that have no name here included.
	// The zero value is EPERM.
	Else Verdict
}

// Verdict is what happens to a call.
type Verdict uint32

// The verdicts.
const (
	Allow  = Verdict(unix.SECCOMP_RET_ALLOW)
	EPERM  = Verdict(unix.SECCOMP_RET_ERRNO) | Verdict(unix.EPERM)
	ENOSYS = Verdict(unix.SECCOMP_RET_ERRNO) | Verdict(unix.ENOSYS)
)

// Rule allows a call when all conditions of one alternative hold.
type Rule struct {
	Name string
	Any  [][]Cond
}

// Cond looks at one argument.
type Cond struct {
	Arg   uint32
	Op    Op
	Value uint64
}

// Op is a comparison.
type Op int

// The comparisons. All look at 64 bits, but LowNot: the kernel takes some
// arguments (the command of ioctl) as 32 bits and ignores the rest, so that a
// value to refuse must be told by its low half alone.
const (
	Equal   Op = iota
	AnySet     // a bit of Value is set
	NoneSet    // no bit of Value is set
	LowNot     // the low 32 bits are not Value
)

// When allows name if all conditions hold.
func When(name string, c ...Cond) Rule { return Rule{name, [][]Cond{c}} }

// OneOf allows name when argument arg is one of values.
func OneOf(name string, arg uint32, values ...uint64) Rule {
	r := Rule{Name: name}
	for _, v := range values {
		r.Any = append(r.Any, []Cond{{arg, Equal, v}})
	}
	return r
}

// Offsets in struct seccomp_data; both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
	x32Bit    = 0x40000000
)

// Assemble makes the program. It is our own, over the library's tables of calls:
// the library's (v1.6.0) goes on comparing an argument with call numbers after a
// condition failed, so that clone(9, …) passes for mmap. Here a call that has
// conditions is decided within its own block, and the number is never reloaded.
func (f Filter) Assemble() ([]bpf.RawInstruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	p := program{info: info}
	p.add(bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(EPERM)},
		bpf.LoadAbsolute{Off: offNumber, Size: 4})
	if info.ID == arch.X86_64.ID {
		p.add(bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32Bit, SkipFalse: 1}, bpf.RetConstant{Val: uint32(ENOSYS)})
	}
	// Calls with conditions come first: the kernel caches that the others are
	// allowed, and runs the program for these only.
	for _, r := range f.When {
		p.block(r.Name, r.body())
	}
	for _, l := range []struct {
		names []string
		v     Verdict
	}{{f.Allow, Allow}, {f.Refuse, EPERM}, {f.Absent, ENOSYS}} {
		for _, n := range l.names {
			p.block(n, []bpf.Instruction{l.v.ret()})
		}
	}
	rest := f.Else
	if rest != ENOSYS {
		rest = EPERM // whatever else was asked for: never an allowance
	}
	p.add(rest.ret())
	if p.err != nil {
		return nil, p.err
	}
	return bpf.Assemble(p.ins)
}

func (v Verdict) ret() bpf.Instruction { return bpf.RetConstant{Val: uint32(v)} }

type program struct {
	info *arch.Info
	ins  []bpf.Instruction
	seen []string
	err  error
}

func (p *program) add(i ...bpf.Instruction) { p.ins = append(p.ins, i...) }

// block is body for the call name; body must return on every path.
func (p *program) block(name string, body []bpf.Instruction) {
	nr, ok := p.info.SyscallNames[name]
	for _, s := range p.seen {
		ok = ok && s != name
	}
	if !ok || len(body) > 255 {
		p.err = fmt.Errorf("call %q is unknown, listed twice or has too many conditions", name)
		return
	}
	p.seen = append(p.seen, name)
	p.add(bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(nr), SkipFalse: uint8(len(body))})
	p.add(body...)
}

// body allows on the first alternative that holds, and refuses at its end.
func (r Rule) body() []bpf.Instruction {
	var out []bpf.Instruction
	for _, alt := range r.Any {
		var part []bpf.Instruction
		for _, c := range alt {
			part = append(part, c.test()...)
		}
		for i, ins := range part { // a test that fails skips the rest and the return
			if j, ok := ins.(bpf.JumpIf); ok && j.SkipFalse == fails {
				j.SkipFalse = uint8(len(part) - i)
				part[i] = j
			} else if ok && j.SkipTrue == fails {
				j.SkipTrue = uint8(len(part) - i)
				part[i] = j
			}
		}
		out = append(append(out, part...), Allow.ret())
	}
	return append(out, EPERM.ret())
}

// fails marks the side of a jump that leaves the alternative.
const fails = 255

// test loads both halves of the argument, and jumps to fails unless it fits.
func (c Cond) test() []bpf.Instruction {
	lo, hi := offArgs+8*c.Arg, offArgs+8*c.Arg+4
	low, high := uint32(c.Value), uint32(c.Value>>32)
	load := func(off uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: off, Size: 4} }
	switch c.Op {
	case Equal:
		return []bpf.Instruction{
			load(hi), bpf.JumpIf{Cond: bpf.JumpEqual, Val: high, SkipFalse: fails},
			load(lo), bpf.JumpIf{Cond: bpf.JumpEqual, Val: low, SkipFalse: fails},
		}
	case NoneSet:
		return []bpf.Instruction{
			load(hi), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: high, SkipTrue: fails},
			load(lo), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: low, SkipTrue: fails},
		}
	case LowNot:
		return []bpf.Instruction{load(lo), bpf.JumpIf{Cond: bpf.JumpEqual, Val: low, SkipTrue: fails}}
	default: // AnySet
		return []bpf.Instruction{
			load(hi), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: high, SkipTrue: 2},
			load(lo), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: low, SkipFalse: fails},
		}
	}
}
