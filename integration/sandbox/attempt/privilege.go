//go:build linux

package attempt

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func privileges() map[string]Func {
	return map[string]Func{
		"privilege: setuid program": func(t *Targets) (string, error) { return becomes(t.Setuid, "euid 0") },
		"privilege: file capabilities": func(t *Targets) (string, error) {
			return becomes(t.Filecaps, "capable")
		},
		"privilege: setuid(0)": func(*Targets) (string, error) {
			runtime.LockOSThread()
			_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0)
			return did("setresuid", errnoOf(e))
		},
		"privilege: setgid(0)": func(*Targets) (string, error) {
			runtime.LockOSThread()
			_, _, e := unix.RawSyscall(unix.SYS_SETRESGID, 0, 0, 0)
			return did("setresgid", errnoOf(e))
		},
		"privilege: setgroups": func(*Targets) (string, error) {
			runtime.LockOSThread()
			_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
			return did("setgroups", errnoOf(e))
		},
		"privilege: capset": func(*Targets) (string, error) {
			runtime.LockOSThread()
			h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			d := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
			return did("capset", unix.Capset(&h, &d[0]))
		},
		"privilege: chown": func(t *Targets) (string, error) {
			p := fmt.Sprintf("%s/owned-%d", t.Workspace, os.Getpid())
			if err := os.WriteFile(p, nil, 0o600); err != nil {
				return "", err
			}
			defer os.Remove(p)
			return did("chown", os.Chown(p, 1, 1))
		},
		"privilege: any capability": func(*Targets) (string, error) {
			return status(func(name, value string) bool {
				return slices.Contains([]string{"CapInh", "CapPrm", "CapEff", "CapAmb"}, name) && strings.Trim(value, "0") != ""
			})
		},
		"privilege: no_new_privs is off": func(*Targets) (string, error) {
			return status(func(name, value string) bool { return name == "NoNewPrivs" && value == "0" })
		},
		"privilege: seccomp is off": func(*Targets) (string, error) {
			return status(func(name, value string) bool { return name == "Seccomp" && value == "0" })
		},
		// What is run from memory must be under the same locks.
		"privilege: program in memory": inMemory,
		"privilege: group 0": func(*Targets) (string, error) {
			g, err := os.Getgroups()
			if err == nil && !slices.Contains(append(g, os.Getgid()), 0) {
				err = errNothing
			}
			return did("member of group 0", err)
		},
	}
}

// WhoAmI is what becomes asks of another copy of the program.
func WhoAmI() string {
	s := fmt.Sprintf("euid %d", unix.Geteuid())
	if _, err := status(func(name, value string) bool { return name == "CapEff" && strings.Trim(value, "0") != "" }); err == nil {
		s += " capable"
	}
	if _, err := status(func(name, value string) bool {
		return name == "Seccomp" && value == "0" || name == "NoNewPrivs" && value == "0"
	}); err == nil {
		s += " unlocked"
	}
	return s
}

func becomes(path, want string) (string, error) {
	if path == "" {
		return "", errNothing
	}
	out, err := program(path, nil, "whoami")
	if err == nil && !strings.Contains(out, want) {
		err = fmt.Errorf("%s: %w", out, unix.EPERM)
	}
	return out, err
}

// status finds a line of this process's state.
func status(match func(name, value string) bool) (string, error) {
	b, err := head("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if match(name, strings.TrimSpace(value)) {
			return strings.TrimSpace(line), nil
		}
	}
	return "", errNothing
}

func inMemory(*Targets) (string, error) {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	fd, err := unix.MemfdCreate("escape", 0)
	if err != nil {
		return "", fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return "", err
	}
	return becomes(fmt.Sprintf("/proc/self/fd/%d", fd), "unlocked")
}
