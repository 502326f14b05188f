//go:build linux

package attempt

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func devices() map[string]Func {
	m := map[string]Func{
		"device: make a character device": func(t *Targets) (string, error) { return mknod(t, unix.S_IFCHR, 1, 3) },
		"device: make a block device":     func(t *Targets) (string, error) { return mknod(t, unix.S_IFBLK, 7, 0) },
		"device: unexpected nodes":        unexpected,
		"device: terminal of the caller":  func(t *Targets) (string, error) { return callers(t, unix.O_RDWR) },
		"device: terminals of others":     ptys,
	}
	for _, d := range []string{"mem", "port", "kmsg", "loop-control", "loop0", "fuse", "net/tun", "kvm", "console", "tty1"} {
		m["device: open /dev/"+d] = func(*Targets) (string, error) {
			return opens("/dev/"+d, unix.O_RDONLY|unix.O_NONBLOCK)
		}
	}
	return m
}

func mknod(t *Targets, kind uint32, major, minor uint32) (string, error) {
	p := filepath.Join(t.Workspace, fmt.Sprintf("node-%d", os.Getpid()))
	if err := unix.Mknod(p, kind|0o666, int(unix.Mkdev(major, minor))); err != nil {
		return "", fmt.Errorf("mknod: %w", err)
	}
	defer os.Remove(p)
	return opens(p, unix.O_RDONLY)
}

// callers opens the terminal of the caller; one of the same name is another's.
func callers(t *Targets, flags int) (string, error) {
	fd, err := unix.Open(t.TTY, flags|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: t.TTY, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Dev != t.TTYDev {
		return "", errNothing
	}
	return "opened " + t.TTY, nil
}

// unexpected looks for any device node that is not of the minimal set.
func unexpected(*Targets) (string, error) {
	known := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
	found := ""
	err := filepath.WalkDir("/dev", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeDevice != 0 && !slices.Contains(known, d.Name()) && !strings.HasPrefix(p, "/dev/pts/") {
			found = p
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && found == "" {
		err = errNothing
	}
	return "sees " + found, err
}

// ptys looks for terminals that are nobody's in this sandbox.
func ptys(*Targets) (string, error) {
	own, _ := os.Readlink("/proc/self/fd/0") // a pipe is no terminal
	l, err := os.ReadDir("/dev/pts")
	if err != nil {
		return "", err
	}
	for _, e := range l {
		if p := "/dev/pts/" + e.Name(); e.Name() != "ptmx" && p != own {
			return "sees " + p, nil
		}
	}
	return "", errNothing
}
