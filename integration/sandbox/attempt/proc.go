//go:build linux

package attempt

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Spec: C-11.
func procfs() map[string]Func {
	m := map[string]Func{
		"proc: environ of others": func(t *Targets) (string, error) { return scan(t, "environ") },
		"proc: cmdline of others": func(t *Targets) (string, error) { return scan(t, "cmdline") },
		"proc: secret through root of others": func(t *Targets) (string, error) {
			return scan(t, "root"+t.Secret)
		},
		"proc: secret through cwd of others": func(t *Targets) (string, error) {
			return scan(t, "cwd/"+filepath.Base(t.Secret))
		},
		"proc: secret through fd of others": func(t *Targets) (string, error) {
			return scan(t, "fd/"+strconv.Itoa(t.Victim.FD))
		},
		"proc: maps of others": func(t *Targets) (string, error) {
			return readable(fmt.Sprintf("/proc/%d/maps", t.Victim.PID))
		},
		"proc: memory of others": procMem,
		"proc: kallsyms":         kallsyms,
		"proc: kcore":            func(*Targets) (string, error) { return opens("/proc/kcore", unix.O_RDONLY) },
		"proc: kmsg":             func(*Targets) (string, error) { return opens("/proc/kmsg", unix.O_RDONLY|unix.O_NONBLOCK) },
		"proc: sysrq-trigger":    func(*Targets) (string, error) { return opens("/proc/sysrq-trigger", unix.O_WRONLY) },
		"syslog":                 syslog,
		"sys: write":             sysWrite,
		"sys: interfaces of the host": func(*Targets) (string, error) {
			return others("/sys/class/net", "lo")
		},
	}
	for _, f := range []string{"environ", "maps", "mem", "auxv", "stack", "syscall", "io", "timerslack_ns"} {
		m["proc: "+f+" of PID 1"] = func(*Targets) (string, error) { return readable("/proc/1/" + f) }
	}
	for _, f := range []string{"root", "cwd", "fd", "map_files"} {
		m["proc: "+f+" of PID 1"] = func(*Targets) (string, error) {
			l, err := os.ReadDir("/proc/1/" + f + "/")
			if err == nil && f == "fd" && len(l) > 0 {
				_, err = os.Readlink("/proc/1/fd/" + l[0].Name())
			}
			return fmt.Sprint(len(l), " entries"), err
		}
	}
	for name, f := range map[string]string{
		"hostname": "kernel/hostname", "core_pattern": "kernel/core_pattern", "modprobe": "kernel/modprobe",
		"ip_forward": "net/ipv4/ip_forward", "overcommit": "vm/overcommit_memory", "protected_hardlinks": "fs/protected_hardlinks",
		"shm_rmid_forced": "kernel/shm_rmid_forced",
	} {
		m["proc: write sys/"+name] = func(*Targets) (string, error) { return opens("/proc/sys/"+f, unix.O_WRONLY) }
	}
	return m
}

// opens only opens: what comes after is the kernel's ordinary work.
func opens(path string, flags int) (string, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	_ = unix.Close(fd)
	return "opened " + path, nil
}

// readable reads one byte where reading is not at address 0.
func readable(path string) (string, error) {
	if strings.HasSuffix(path, "/mem") {
		return opens(path, unix.O_RDWR)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 64)); err != nil && err != io.EOF {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return "read " + path, nil
}

// scan looks for the canary in one file of every other process.
func scan(t *Targets, file string) (string, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return "", err
	}
	last := error(errNothing)
	for _, d := range dirs {
		if d == "/proc/"+strconv.Itoa(os.Getpid()) {
			continue
		}
		b, err := head(d + "/" + file)
		if err != nil {
			last = err
		} else if bytes.Contains(b, []byte(t.Canary)) {
			return "the canary is in " + d + "/" + file, nil
		}
	}
	return "", last
}

// head reads at most 64 KiB of a file and never waits: some are pipes.
func head(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 64<<10)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return b[:n], nil
}

func procMem(t *Targets) (string, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.Victim.PID), os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, len(t.Canary))
	if _, err := f.ReadAt(b, int64(t.Victim.Address)); err != nil {
		return "", err
	}
	if string(b) != t.Canary {
		return "", errNothing
	}
	return "read the canary from its memory", nil
}

// kallsyms shows addresses of the running kernel only to the privileged.
func kallsyms(*Targets) (string, error) {
	b, err := head("/proc/kallsyms")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if addr, _, ok := strings.Cut(line, " "); ok && strings.Trim(addr, "0") != "" {
			return "kernel addresses", nil
		}
	}
	return "", fmt.Errorf("addresses are hidden: %w", unix.EACCES)
}

// syslog reads the size of the kernel's log.
func syslog(*Targets) (string, error) {
	b := make([]byte, 64)
	_, _, e := unix.Syscall(unix.SYS_SYSLOG, 3, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return did("syslog", errnoOf(e))
}

func sysWrite(*Targets) (string, error) {
	last := error(errNothing)
	for _, p := range []string{
		"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/kernel/uevent_helper",
		"/sys/kernel/profiling", "/sys/module/printk/parameters/time", "/sys/devices/system/cpu/cpu1/online",
	} {
		if s, err := opens(p, unix.O_WRONLY); err == nil {
			return s, nil
		} else if !os.IsNotExist(err) {
			last = err
		}
	}
	return "", last
}

// others lists what a folder holds beside what is expected.
func others(dir string, expected ...string) (string, error) {
	l, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range l {
		known := false
		for _, x := range expected {
			known = known || e.Name() == x
		}
		if !known {
			return "sees " + filepath.Join(dir, e.Name()), nil
		}
	}
	return "", errNothing
}
