// Package ptytest makes terminals for tests.
//
// State owned: none. Imports: x/sys. Imported by: tests of execution/relay,
// execution/shim, host/pty, cmd/agentos. Tests: those that use it.
package ptytest

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Open makes a terminal in its default mode (cooked, echo, signals). Both ends
// are non-blocking and closed with the test.
func Open(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(m), "master")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(m, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	name := "/dev/pts/" + strconv.Itoa(n)
	s, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	slave = os.NewFile(uintptr(s), name)
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// Raw switches the terminal to raw mode: no echo, no signals, no lines.
func Raw(t *testing.T, f *os.File) {
	t.Helper()
	change(t, f, func(x *unix.Termios) {
		x.Iflag &^= unix.ICRNL | unix.IXON
		x.Oflag &^= unix.OPOST
		x.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
		x.Cc[unix.VMIN], x.Cc[unix.VTIME] = 1, 0
	})
}

// NoEcho switches echo off and output processing too.
func NoEcho(t *testing.T, f *os.File) {
	t.Helper()
	change(t, f, func(x *unix.Termios) { x.Lflag &^= unix.ECHO; x.Oflag &^= unix.OPOST })
}

func change(t *testing.T, f *os.File, how func(*unix.Termios)) {
	t.Helper()
	with(t, f, func(fd int) error {
		x, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		how(x)
		return unix.IoctlSetTermios(fd, unix.TCSETS, x)
	})
}

// Termios is the terminal's whole mode, for comparing.
func Termios(t *testing.T, f *os.File) (x unix.Termios) {
	t.Helper()
	with(t, f, func(fd int) error {
		p, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			x = *p
		}
		return err
	})
	return x
}

// Size is the terminal's window size.
func Size(t *testing.T, f *os.File) (rows, cols uint16) {
	t.Helper()
	with(t, f, func(fd int) error {
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			rows, cols = w.Row, w.Col
		}
		return err
	})
	return rows, cols
}

func with(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var derr error
	if err := raw.Control(func(fd uintptr) { derr = do(int(fd)) }); err != nil {
		t.Fatal(err)
	}
	if derr != nil {
		t.Fatal(derr)
	}
}

// Signals switches on that typed characters make signals.
func Signals(t *testing.T, f *os.File) {
	t.Helper()
	change(t, f, func(x *unix.Termios) { x.Lflag |= unix.ISIG })
}

// Resize sets the terminal's window size.
func Resize(t *testing.T, f *os.File, rows, cols uint16) {
	t.Helper()
	with(t, f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}
