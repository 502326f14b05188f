package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// signals are those that may be sent to a command from outside.
var signals = map[string]unix.Signal{
	"INT": unix.SIGINT, "TERM": unix.SIGTERM, "HUP": unix.SIGHUP, "QUIT": unix.SIGQUIT,
	"USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2, "TSTP": unix.SIGTSTP, "CONT": unix.SIGCONT,
}

// pidfdProcessGroup sends to the whole group of a pidfd (Linux 6.9,
// pidfd_send_signal(2)).
const pidfdProcessGroup = 1 << 2

// Signal sends a signal to the command and its process group, on kernels before
// 6.9 to the command alone. A command that has ended gets none.
func (s *Sandbox) Signal(name string) error {
	sig, ok := signals[name]
	if !ok {
		return fmt.Errorf("send signal %.20q: unknown", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reaped {
		return nil
	}
	fd, err := s.command()
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, sig, nil, pidfdProcessGroup)
	if errors.Is(err, unix.EINVAL) {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send signal %s: %w", name, err)
	}
	return nil
}

// command opens the process of the command, or returns -1 when it has ended. It
// is the first process's child with the number that the first process said; the
// descriptor is taken before that is checked, so that it can't be a stranger's.
func (s *Sandbox) command() (int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.pid))
	if err != nil {
		return -1, err
	}
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended
		}
		for _, word := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				return -1, fmt.Errorf("read %s: %w", f, err)
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			if s.isCommand(pid) {
				return fd, nil
			}
			_ = unix.Close(fd)
		}
	}
	return -1, nil
}

// isCommand reports whether a process is a child of the first process and the
// one that it started as the command.
func (s *Sandbox) isCommand(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	parent, inside := "", ""
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) == 0 {
			continue
		}
		switch key {
		case "PPid":
			parent = f[0]
		case "NSpid":
			inside = f[len(f)-1]
		}
	}
	return parent == strconv.Itoa(s.pid) && inside == strconv.Itoa(s.child)
}
