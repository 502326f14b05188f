// Package pty is what the holder of a terminal's master side does with it: set
// the window size, ask how the terminal is set, read and write without a thread
// that hangs in the kernel. It makes no terminals.
//
// State owned: none. Imports: x/sys. Imported by: execution/relay, and tests.
// Linux only; the ioctls are TCGETS and TIOCSWINSZ, which is all that
// host/confine's shim profile lets through. Functions are safe for concurrent use.
// Tests: pty_linux_test.go; host/confine has the filter's.
package pty

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Mode is how a terminal is set, as far as it matters to who types.
type Mode struct {
	Signals   bool // ISIG: the three characters below make signals
	Canonical bool // ICANON: lines; EOF ends input
	Intr      byte // 0: switched off, as are the others
	Quit      byte
	Susp      byte
	EOF       byte
}

// Adopt returns a non-blocking duplicate of f and closes f, so that Close of the
// duplicate ends a Read or Write under way. The flag is the open file's: the far
// end of a pipe or terminal keeps its own.
func Adopt(f *os.File) (*os.File, error) {
	defer f.Close()
	fd := -1
	err := control(f, func(old int) (err error) {
		if fd, err = unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return err
		}
		if err = unix.SetNonblock(fd, true); err != nil {
			_ = unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("adopt descriptor %q: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// SetSize sets the window size in cells; the terminal's foreground processes get
// SIGWINCH if it changed.
func SetSize(f *os.File, rows, cols uint16) error {
	err := control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	if err != nil {
		return fmt.Errorf("set window size: %w", err)
	}
	return nil
}

// ModeOf reads the mode of the terminal whose either side f is.
func ModeOf(f *os.File) (Mode, error) {
	var m Mode
	err := control(f, func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		m = Mode{Signals: t.Lflag&unix.ISIG != 0, Canonical: t.Lflag&unix.ICANON != 0,
			Intr: t.Cc[unix.VINTR], Quit: t.Cc[unix.VQUIT], Susp: t.Cc[unix.VSUSP], EOF: t.Cc[unix.VEOF]}
		return nil
	})
	if err != nil {
		return m, fmt.Errorf("read terminal mode: %w", err)
	}
	return m, nil
}

// control runs do on f's descriptor; unlike Fd it leaves f non-blocking.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var derr error
	if err := raw.Control(func(fd uintptr) { derr = do(int(fd)) }); err != nil {
		return err
	}
	return derr
}
