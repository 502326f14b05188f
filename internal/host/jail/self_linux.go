package jail

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"

	"agentos/internal/host/confine"
	"agentos/internal/host/seccomp"
)

// needed are the capabilities that making sandboxes takes, of root.
func needed() []int {
	return []int{
		unix.CAP_SYS_ADMIN,               // namespaces, mounts
		unix.CAP_SETUID, unix.CAP_SETGID, // the agent's identity, maps of IDs
		unix.CAP_SETPCAP,                                // to empty the agent's bounding set
		unix.CAP_NET_ADMIN,                              // loopback
		unix.CAP_KILL,                                   // processes of other users
		unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, // sources in folders of their owner, control groups
		unix.CAP_CHOWN, // folders made in the agent's file systems
	}
}

// Confine gives up what the process that makes sandboxes does not need, on all
// threads, for itself and for all that it starts: capabilities and system calls.
// It can't be undone; after an error the process must exit.
func Confine() error {
	if os.Geteuid() == 0 {
		if err := keepCapabilities(needed()); err != nil {
			return err
		}
	}
	if err := confine.AllPrctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return seccomp.Install(seccomp.Launcher())
}

func keepCapabilities(keep []int) error {
	var mask uint64
	for _, c := range keep {
		mask |= 1 << c
	}
	for c := 0; c < 64; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the last one of this kernel
		}
		if err == nil && has != 0 && mask&(1<<c) == 0 {
			err = confine.AllPrctl(unix.PR_CAPBSET_DROP, uintptr(c))
		}
		if err != nil {
			return fmt.Errorf("drop bounding capability %d: %w", c, err)
		}
	}
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	have := [2]unix.CapUserData{}
	if err := unix.Capget(hdr, &have[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for i := range have {
		have[i].Permitted &= uint32(mask >> (32 * i)) // what a container withheld stays withheld
		have[i].Effective, have[i].Inheritable = have[i].Permitted, 0
	}
	if _, _, e := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(&have)), 0); e != 0 {
		return fmt.Errorf("drop capabilities: %w", e)
	}
	return nil
}
