package confine

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// installFilter puts profile's allow list on every thread.
func installFilter(profile Profile) error {
	raw, err := policy(profile, os.Getpid()).assemble()
	if err != nil {
		return fmt.Errorf("%w: assemble profile %q: %w", ErrSeccomp, profile, err)
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
		return fmt.Errorf("%w: %w", ErrSeccomp, e)
	}
	if tid != 0 {
		return fmt.Errorf("%w: thread %d has another filter", ErrSeccomp, tid)
	}
	return nil
}

// filter is an allow list. What is in none of its parts is EPERM.
type filter struct {
	allow  []string // whatever the arguments are
	when   []rule   // when the arguments fit
	absent []string // ENOSYS
}

// rule allows a call when all conditions of one alternative hold.
type rule struct {
	name string
	any  [][]cond
}

// cond looks at one argument, all 64 bits of it.
type cond struct {
	arg   uint32
	op    op
	value uint64
}

type op int

const (
	equal   op = iota
	anySet     // a bit of value is set
	noneSet    // no bit of value is set
)

// Offsets in struct seccomp_data; both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
	x32Bit    = 0x40000000
)

const (
	retAllow  = uint32(unix.SECCOMP_RET_ALLOW)
	retEPERM  = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	retENOSYS = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
)

// assemble makes the program. It is our own, over the library's tables of calls:
// the library's (v1.6.0) goes on comparing an argument with call numbers after a
// condition failed, so that clone(9, …) passes for mmap. Here a call that has
// conditions is decided within its own block, and the number is never reloaded.
func (f filter) assemble() ([]bpf.RawInstruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	p := program{info: info}
	p.add(bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: retEPERM},
		bpf.LoadAbsolute{Off: offNumber, Size: 4})
	if info.ID == arch.X86_64.ID {
		p.add(bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32Bit, SkipFalse: 1}, bpf.RetConstant{Val: retENOSYS})
	}
	for _, n := range f.allow {
		p.block(n, []bpf.Instruction{bpf.RetConstant{Val: retAllow}})
	}
	for _, r := range f.when {
		p.block(r.name, r.body())
	}
	for _, n := range f.absent {
		p.block(n, []bpf.Instruction{bpf.RetConstant{Val: retENOSYS}})
	}
	p.add(bpf.RetConstant{Val: retEPERM})
	if p.err != nil {
		return nil, p.err
	}
	return bpf.Assemble(p.ins)
}

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
func (r rule) body() []bpf.Instruction {
	var out []bpf.Instruction
	for _, alt := range r.any {
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
		out = append(append(out, part...), bpf.RetConstant{Val: retAllow})
	}
	return append(out, bpf.RetConstant{Val: retEPERM})
}

// fails marks the side of a jump that leaves the alternative.
const fails = 255

// test loads both halves of the argument, and jumps to fails unless it fits.
func (c cond) test() []bpf.Instruction {
	lo, hi := offArgs+8*c.arg, offArgs+8*c.arg+4
	low, high := uint32(c.value), uint32(c.value>>32)
	load := func(off uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: off, Size: 4} }
	switch c.op {
	case equal:
		return []bpf.Instruction{
			load(hi), bpf.JumpIf{Cond: bpf.JumpEqual, Val: high, SkipFalse: fails},
			load(lo), bpf.JumpIf{Cond: bpf.JumpEqual, Val: low, SkipFalse: fails},
		}
	case noneSet:
		return []bpf.Instruction{
			load(hi), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: high, SkipTrue: fails},
			load(lo), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: low, SkipTrue: fails},
		}
	default: // anySet
		return []bpf.Instruction{
			load(hi), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: high, SkipTrue: 2},
			load(lo), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: low, SkipFalse: fails},
		}
	}
}

// policy is the allow list of profile for the process pid.
func policy(profile Profile, pid int) filter {
	f := filter{allow: base(), absent: absent(profile)}
	if profile != Loop {
		f.allow = append(f.allow, messages()...)
	}
	if profile == Tool || profile == ToolExec {
		f.allow = append(f.allow, files()...)
	}
	self := cond{0, equal, uint64(pid)}
	f.when = []rule{when("tgkill", self), fcntls(profile), prctls(profile)}
	switch profile {
	case ToolExec:
		f.allow = append(f.allow, children()...)
		f.when = append(f.when, when("clone", cond{0, noneSet, cloneNew}), when("kill", self))
		f.when = append(f.when, openNoCreate()...)
		return f
	case Tool:
		f.when = append(f.when, when("openat", cond{2, noneSet, writing}))
	}
	f.when = append(f.when, when("clone", cond{0, anySet, unix.CLONE_THREAD}, cond{0, noneSet, cloneNew}),
		when("mmap", cond{2, noneSet, unix.PROT_EXEC}), when("mprotect", cond{2, noneSet, unix.PROT_EXEC}))
	return f
}
