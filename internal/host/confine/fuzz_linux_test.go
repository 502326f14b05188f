package confine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// meaning evaluates a filter the plain way, name by name: what the assembled
// program has to do for calls of our own architecture.
func meaning(f filter, info *arch.Info, nr uint32, args [6]uint64) uint32 {
	name := info.SyscallNumbers[int(nr)]
	if slices.Contains(f.allow, name) {
		return retAllow
	}
	for _, r := range f.when {
		if r.name != name {
			continue
		}
		for _, alt := range r.any {
			if !slices.ContainsFunc(alt, func(c cond) bool { return !holds(c, args[c.arg]) }) {
				return retAllow
			}
		}
	}
	if slices.Contains(f.absent, name) {
		return retENOSYS
	}
	return retEPERM
}

func holds(c cond, v uint64) bool {
	switch c.op {
	case equal:
		return v == c.value
	case anySet:
		return v&c.value != 0
	default:
		return v&c.value == 0
	}
}

// The assembled program does what the lists say, for any call with any arguments.
func FuzzFilter(f *testing.F) {
	for nr := range uint32(470) {
		f.Add(uint8(nr%4), uint32(0xC000003E), nr, uint64(0), uint64(0), uint64(0))
		f.Add(uint8(nr%4), uint32(0xC000003E), uint32(56), uint64(nr), uint64(nr), uint64(nr))
	}
	f.Add(uint8(0), uint32(0xC00000B7), uint32(56), uint64(0x50f00), uint64(3), uint64(0x80000))
	f.Add(uint8(3), uint32(0x40000003), uint32(0x40000000), uint64(1)<<32|4242, uint64(1), uint64(4))
	info, err := arch.GetInfo("")
	if err != nil {
		f.Fatal(err)
	}
	profiles := []Profile{Loop, Shim, Tool, ToolExec}
	f.Fuzz(func(t *testing.T, which uint8, archID, nr uint32, a, b, c uint64) {
		p := profiles[int(which)%len(profiles)]
		got := vm(t, p)(archID, nr, a, b, c)
		want := retEPERM
		switch {
		case archID != uint32(info.ID):
		case info.Name == arch.X86_64.Name && nr >= uint32(arch.X32.SeccompMask):
			want = retENOSYS
		default:
			want = meaning(policy(p, 4242), info, nr, [6]uint64{a, b, c})
		}
		if got != want {
			t.Errorf("%s: arch %#x call %d (%#x, %#x, %#x): filter %#x, lists %#x", p, archID, nr, a, b, c, got, want)
		}
	})
}

// Random rules with full 64-bit values, which no profile has, mean the same too.
func TestRandomRules(t *testing.T) {
	t.Parallel()
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		word := func() uint64 { return []uint64{0, 1, 9, 1 << 32, 1<<32 | 1, 1 << 63, 10}[rnd.IntN(7)] }
		var f filter
		for _, name := range []string{"clone", "mmap", "mprotect", "prctl"} {
			r := rule{name: name}
			for range 1 + rnd.IntN(3) {
				var alt []cond
				for range rnd.IntN(4) {
					alt = append(alt, cond{uint32(rnd.IntN(3)), op(rnd.IntN(3)), word()})
				}
				r.any = append(r.any, alt)
			}
			f.when = append(f.when, r)
		}
		f.allow, f.absent = []string{"read"}, []string{"write"}
		run := machine(t, f)
		for range 200 {
			nr := []uint32{unix.SYS_CLONE, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_PRCTL, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE}[rnd.IntN(7)]
			args := [6]uint64{word(), word(), word()}
			if got, want := run(uint32(info.ID), nr, args[:]...), meaning(f, info, nr, args); got != want {
				t.Fatalf("seed %d: call %d %x: program %#x, rules %#x: %+v", seed, nr, args, got, want, f.when)
			}
		}
	}
}
