package confine

import (
	"testing"

	"agentos/internal/host/seccomp/seccomptest"
)

// The assembled program does what the lists say, for any call with any arguments.
func FuzzFilter(f *testing.F) {
	for nr := range uint32(470) {
		f.Add(uint8(nr%4), uint32(0xC000003E), nr, uint64(0), uint64(0), uint64(0))
		f.Add(uint8(nr%4), uint32(0xC000003E), uint32(56), uint64(nr), uint64(nr), uint64(nr))
	}
	f.Add(uint8(0), uint32(0xC00000B7), uint32(56), uint64(0x50f00), uint64(3), uint64(0x80000))
	f.Add(uint8(3), uint32(0x40000003), uint32(0x40000000), uint64(1)<<32|4242, uint64(1), uint64(4))
	info := seccomptest.Info(f)
	profiles := []Profile{Loop, Shim, Tool, ToolExec}
	f.Fuzz(func(t *testing.T, which uint8, archID, nr uint32, a, b, c uint64) {
		p := profiles[int(which)%len(profiles)]
		got := vm(t, p)(archID, nr, a, b, c)
		want := seccomptest.Meaning(policy(p, 4242), info, archID, nr, [6]uint64{a, b, c})
		if got != want {
			t.Errorf("%s: arch %#x call %d (%#x, %#x, %#x): filter %#x, lists %#x", p, archID, nr, a, b, c, got, want)
		}
	})
}
