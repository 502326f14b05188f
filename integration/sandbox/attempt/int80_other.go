//go:build linux && !amd64

package attempt

import "golang.org/x/sys/unix"

// int80: this architecture has no such gate.
func int80(uint32) uint32 { return ^uint32(unix.ENOSYS) + 1 }

// ioperm: nor has it ports.
func ioperm() error { return unix.ENOSYS }
