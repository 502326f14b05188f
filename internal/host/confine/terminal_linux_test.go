package confine

import (
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"agentos/internal/host/seccomp"
)

// The shim may size a terminal and look at it; nothing else has any ioctl. All 64
// bits of the command count.
func TestTerminalIoctls(t *testing.T) {
	t.Parallel()
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Profile{Loop, Shim, Tool, ToolExec} {
		for cmd, only := range map[uint64]bool{
			unix.TCGETS: true, unix.TIOCSWINSZ: true, unix.TIOCGWINSZ: false, unix.TIOCSTI: false, unix.TIOCLINUX: false,
			unix.TCSETS: false, unix.TIOCSCTTY: false, unix.TIOCGPTPEER: false, unix.TIOCSETD: false, 0x5421: false,
			unix.TIOCSWINSZ | 1<<32: false,
		} {
			want := seccomp.EPERM
			if only && p == Shim {
				want = seccomp.Allow
			}
			if got := vm(t, p)(uint32(info.ID), unix.SYS_IOCTL, 0, cmd); got != want {
				t.Errorf("%s: ioctl %#x: %#x, want %#x", p, cmd, got, want)
			}
		}
	}
}
