//go:build linux

package attempt

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func keys() map[string]Func {
	return map[string]Func{
		"key: read the caller's": func(t *Targets) (string, error) {
			id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", t.Key, 0)
			if err != nil {
				return "", fmt.Errorf("keyctl: %w", err)
			}
			b := make([]byte, 256)
			n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, b, 0)
			if err == nil && !strings.Contains(string(b[:min(n, len(b))]), t.Canary) {
				err = errNothing
			}
			return did("keyctl", err)
		},
		"key: request": func(t *Targets) (string, error) {
			_, err := unix.RequestKey("user", t.Key, "", 0)
			return did("request_key", err)
		},
		"key: leave one behind": func(*Targets) (string, error) {
			id, err := unix.AddKey("user", "agentos-escape", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
			if err == nil {
				_, _ = unix.KeyctlInt(unix.KEYCTL_INVALIDATE, id, 0, 0, 0)
			}
			return did("add_key", err)
		},
		"key: list": func(t *Targets) (string, error) {
			b, err := head("/proc/keys")
			if err == nil && !strings.Contains(string(b), t.Key) {
				err = errNothing
			}
			return did("read /proc/keys", err)
		},
	}
}

func ipc() map[string]Func {
	return map[string]Func{
		"ipc: shared memory": func(t *Targets) (string, error) {
			b, err := unix.SysvShmAttach(t.Shm, 0, unix.SHM_RDONLY)
			if err != nil {
				return "", fmt.Errorf("shmat: %w", err)
			}
			if !strings.Contains(string(b), t.Canary) {
				err = errNothing
			}
			return did("shmat", err)
		},
		"ipc: message queue": func(t *Targets) (string, error) {
			name, err := unix.BytePtrFromString(t.Queue)
			if err != nil {
				return "", err
			}
			_, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDWR, 0, 0, 0, 0)
			return did("mq_open", errnoOf(e))
		},
	}
}
