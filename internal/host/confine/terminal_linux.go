package confine

import (
	"golang.org/x/sys/unix"

	"agentos/internal/host/seccomp"
)

// terminals lets the shim ask how a terminal that it was handed is set, and set
// its size. Neither types into one: TIOCSTI and TIOCLINUX stay refused.
func terminals() seccomp.Rule {
	return seccomp.OneOf("ioctl", 1, unix.TCGETS, unix.TIOCSWINSZ)
}
