package spawn

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// OpenBinary opens and verifies the executable at path; see Verify. The caller
// closes it.
func OpenBinary(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "install the binary beside agentos", "open binary %q", path)
	}
	if err := Verify(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Verify reports whether f may be run: a regular file with an execute bit, owned
// by root or by this user, writable by nobody else, without setuid and setgid.
func Verify(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fault.Wrap(err, fault.Internal, "", "stat binary %q", f.Name())
	}
	why := ""
	switch uid := uint32(os.Geteuid()); {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		why = "it is no regular file"
	case st.Uid != 0 && st.Uid != uid:
		why = "its owner is neither root nor this user"
	case st.Mode&0o022 != 0:
		why = "others than its owner may write it"
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		why = "it is setuid or setgid"
	case st.Mode&0o111 == 0:
		why = "it has no execute bit"
	default:
		return nil
	}
	return fault.New(fault.Denied, "reinstall it: owner root, mode 0755", "run binary %q: %s", f.Name(), why)
}
