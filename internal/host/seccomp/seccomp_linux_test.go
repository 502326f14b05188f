package seccomp_test

import (
	"math/rand/v2"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"agentos/internal/host/seccomp"
	"agentos/internal/host/seccomp/seccomptest"
)

// Random rules with full 64-bit values mean what they say.
func TestRandomRules(t *testing.T) {
	t.Parallel()
	info := seccomptest.Info(t)
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		word := func() uint64 { return []uint64{0, 1, 9, 1 << 32, 1<<32 | 1, 1 << 63, 10}[rnd.IntN(7)] }
		f := seccomp.Filter{Else: []seccomp.Verdict{0, seccomp.EPERM, seccomp.ENOSYS, seccomp.Allow}[rnd.IntN(4)]}
		for _, name := range []string{"clone", "mmap", "mprotect", "prctl"} {
			r := seccomp.Rule{Name: name}
			for range 1 + rnd.IntN(3) {
				var alt []seccomp.Cond
				for range rnd.IntN(4) {
					alt = append(alt, seccomp.Cond{Arg: uint32(rnd.IntN(3)), Op: seccomp.Op(rnd.IntN(4)), Value: word()})
				}
				r.Any = append(r.Any, alt)
			}
			f.When = append(f.When, r)
		}
		f.Allow, f.Absent, f.Refuse = []string{"read"}, []string{"write"}, []string{"close"}
		run := seccomptest.Machine(t, f)
		for range 200 {
			nr := []uint32{unix.SYS_CLONE, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_PRCTL, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_DUP, 4000}[rnd.IntN(9)]
			id := uint32(info.ID)
			if rnd.IntN(20) == 0 {
				id = uint32(arch.I386.ID)
			}
			args := [6]uint64{word(), word(), word()}
			if got, want := run(id, nr, args[:]...), seccomptest.Meaning(f, info, id, nr, args); got != want {
				t.Fatalf("seed %d: call %d %x: program %#x, rules %#x: %+v", seed, nr, args, got, want, f.When)
			}
		}
	}
}

func TestAssembleRefuses(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]seccomp.Filter{
		"unknown name": {Allow: []string{"open_sesame"}},
		"listed twice": {Allow: []string{"read"}, Absent: []string{"read"}},
		"too long":     {When: []seccomp.Rule{seccomp.OneOf("prctl", 0, make([]uint64, 60)...)}},
	} {
		if _, err := f.Assemble(); err == nil {
			t.Errorf("%s: assembled", name)
		}
	}
	if err := seccomp.InstallProgram(nil); err == nil {
		t.Error("an empty program was installed")
	}
}
