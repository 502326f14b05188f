// Package seccomptest runs syscall filters in a virtual machine, and says what
// they ought to do, for the tests of everybody who writes one.
//
// State owned: none. Imports: host/seccomp, the tables of go-seccomp-bpf,
// x/net/bpf. Imported by: tests only. Tests: those of host/seccomp and
// host/confine.
package seccomptest

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"

	"agentos/internal/host/seccomp"
)

// Info is this machine's architecture.
func Info(t testing.TB) *arch.Info {
	t.Helper()
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// Machine runs the program of f on struct seccomp_data.
func Machine(t testing.TB, f seccomp.Filter) func(archID, nr uint32, args ...uint64) seccomp.Verdict {
	t.Helper()
	raw, err := f.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	insts, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("filter can't be disassembled")
	}
	m, err := bpf.NewVM(insts)
	if err != nil {
		t.Fatal(err)
	}
	return func(archID, nr uint32, args ...uint64) seccomp.Verdict {
		// struct seccomp_data, each 32-bit word big-endian as this VM loads it.
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data, nr)
		binary.BigEndian.PutUint32(data[4:], archID)
		for i, a := range args {
			binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
			binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
		}
		r, err := m.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return seccomp.Verdict(r)
	}
}

// Meaning evaluates f the plain way, name by name: what the assembled program
// has to do.
func Meaning(f seccomp.Filter, info *arch.Info, archID, nr uint32, args [6]uint64) seccomp.Verdict {
	switch {
	case archID != uint32(info.ID):
		return seccomp.EPERM
	case info.Name == arch.X86_64.Name && nr >= uint32(arch.X32.SeccompMask):
		return seccomp.ENOSYS
	}
	name, known := info.SyscallNumbers[int(nr)]
	for _, r := range f.When {
		if r.Name != name || !known {
			continue
		}
		for _, alt := range r.Any {
			if !slices.ContainsFunc(alt, func(c seccomp.Cond) bool { return !holds(c, args[c.Arg]) }) {
				return seccomp.Allow
			}
		}
		return seccomp.EPERM
	}
	switch {
	case known && slices.Contains(f.Allow, name):
		return seccomp.Allow
	case known && slices.Contains(f.Refuse, name):
		return seccomp.EPERM
	case known && slices.Contains(f.Absent, name), f.Else == seccomp.ENOSYS:
		return seccomp.ENOSYS
	}
	return seccomp.EPERM
}

func holds(c seccomp.Cond, v uint64) bool {
	switch c.Op {
	case seccomp.Equal:
		return v == c.Value
	case seccomp.AnySet:
		return v&c.Value != 0
	case seccomp.LowNot:
		return uint32(v) != uint32(c.Value)
	default:
		return v&c.Value == 0
	}
}
