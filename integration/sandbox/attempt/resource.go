//go:build linux

package attempt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inherited is what a caller may leave lying about.
func inherited() map[string]Func {
	return map[string]Func{
		"inherit: descriptors": func(t *Targets) (string, error) {
			l, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				return "", err
			}
			for _, e := range l {
				p := "/proc/self/fd/" + e.Name()
				to, err := os.Readlink(p)
				if err != nil || strings.HasPrefix(to, "anon_inode:") || strings.HasPrefix(to, "/proc/") {
					continue
				}
				if len(e.Name()) > 1 || e.Name()[0] > '2' {
					return fmt.Sprintf("descriptor %s is %s", e.Name(), to), nil
				}
			}
			return "", errNothing
		},
		"inherit: environment": func(t *Targets) (string, error) {
			if strings.Contains(strings.Join(os.Environ(), " "), t.Canary) {
				return "the canary is in the environment", nil
			}
			return "", errNothing
		},
		"inherit: working directory": func(t *Targets) (string, error) {
			d, err := os.Readlink("/proc/self/cwd")
			if err != nil {
				return "", err
			}
			if strings.HasPrefix(d, "(unreachable)") || filepath.Clean(d) == filepath.Dir(t.Secret) {
				return "stands in " + d, nil
			}
			return "", errNothing
		},
		// The caller's stdout is a file with something in it.
		"inherit: truncate the caller's stdout": func(*Targets) (string, error) {
			return did("ftruncate", unix.Ftruncate(1, 0))
		},
		"inherit: reopen the caller's stdout": func(*Targets) (string, error) {
			var st unix.Stat_t
			if err := unix.Fstat(1, &st); err != nil {
				return "", err
			}
			if st.Mode&unix.S_IFMT != unix.S_IFREG {
				return "", fmt.Errorf("stdout is no file: %w", unix.EINVAL)
			}
			return opens("/proc/self/fd/1", unix.O_RDWR)
		},
		"inherit: signals": func(*Targets) (string, error) {
			if signal.Ignored(unix.SIGHUP) || signal.Ignored(unix.SIGTERM) {
				return "ignores signals as its caller does", nil
			}
			return "", errNothing
		},
	}
}

// resources try for more than the limits.
func resources() map[string]Func {
	return map[string]Func{
		"resource: processes": forks,
		"resource: core dumps": func(*Targets) (string, error) {
			r := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
			return did("setrlimit(CORE)", unix.Setrlimit(unix.RLIMIT_CORE, &r))
		},
		"resource: memory": func(t *Targets) (string, error) {
			b, err := unix.Mmap(-1, 0, int(t.Limits.Memory), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return "", fmt.Errorf("mmap: %w", err)
			}
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			return fmt.Sprint(len(b)>>20, " MiB"), nil
		},
		"resource: tmp": func(t *Targets) (string, error) { return fill(os.TempDir(), t.Limits.Tmp, 4<<20) },
		"resource: shm": func(t *Targets) (string, error) { return fill("/dev/shm", t.Limits.Shm, 4<<20) },
		"resource: file size": func(t *Targets) (string, error) {
			signal.Ignore(unix.SIGXFSZ)
			return fill(t.Workspace, t.Limits.OneFile, t.Limits.OneFile)
		},
		"resource: descriptors": func(t *Targets) (string, error) {
			l := unix.Rlimit{Cur: uint64(t.Limits.Files) + 64, Max: uint64(t.Limits.Files) + 64}
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
				var cur unix.Rlimit
				if unix.Getrlimit(unix.RLIMIT_NOFILE, &cur) == nil {
					cur.Cur = cur.Max
					_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &cur)
				}
			}
			for n := range t.Limits.Files {
				if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
					return "", fmt.Errorf("after %d: %w", n, err)
				}
			}
			return fmt.Sprint(t.Limits.Files, " descriptors"), nil
		},
	}
}

// fill writes n bytes into new files of dir, none larger than one.
func fill(dir string, n, one int64) (string, error) {
	chunk := bytes.Repeat([]byte{1}, 1<<20)
	for left, i := n, 0; left > 0; i++ {
		p := filepath.Join(dir, fmt.Sprintf("fill-%d-%d", os.Getpid(), i))
		f, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		defer os.Remove(p)
		defer f.Close()
		for in := int64(0); in < one && left > 0; in += int64(len(chunk)) {
			if _, err := f.Write(chunk); err != nil {
				return "", err
			}
			left -= int64(len(chunk))
		}
	}
	return fmt.Sprint(n>>20, " MiB"), nil
}

// forks starts sleeping processes until it has enough or is refused.
func forks(t *Targets) (string, error) {
	var all []*exec.Cmd
	defer func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	prog, argv := sleeper()
	for range t.Limits.PIDs {
		c := exec.Command(prog, argv...)
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return "", fmt.Errorf("after %d processes: %w", len(all), err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.Process.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) {
			return "", fmt.Errorf("a process ended: %w", err)
		}
	}
	return fmt.Sprint(len(all), " processes"), nil
}

// sleeper is a small program that does nothing for a while.
func sleeper() (string, []string) {
	for _, p := range []string{"/bin/sleep", "/usr/bin/sleep"} {
		if _, err := os.Stat(p); err == nil {
			return p, []string{"60"}
		}
	}
	return "/proc/self/exe", slices.Clone([]string{"sleep"})
}
