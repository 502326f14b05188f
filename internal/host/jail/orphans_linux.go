package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// orphanTime bounds how long orphans are hunted: a process in the middle of a
// slow system call ends when that does.
const orphanTime = 10 * time.Second

func (j *Jail) note(pid int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.own[pid] = true
}

func (j *Jail) forget(pid int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.own, pid)
}

// orphans ends what lost its first process in a sandbox without a PID namespace:
// this process is the reaper above, so that such processes become its children.
// It returns how many did not end.
func (j *Jail) orphans() int {
	for end := time.Now().Add(orphanTime); ; {
		n := j.endOrphans()
		if n == 0 || time.Now().After(end) {
			return n
		}
		<-time.After(time.Millisecond)
	}
}

// endOrphans kills and reaps, once, every child that was not made here; the
// children of those become ours then. It returns how many there were.
func (j *Jail) endOrphans() int {
	j.forks.Lock()
	defer j.forks.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, pid := range children() {
		if j.own[pid] {
			continue
		}
		n++
		_ = unix.Kill(pid, unix.SIGKILL)
		if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.EINTR) {
			n-- // somebody else's by now
		}
	}
	return n
}

// children are those of all threads of this process.
func children() []int {
	var out []int
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended
		}
		for _, s := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(s); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// reaper makes this process the one that orphans below it come to.
func reaper() error {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		return errno("list children", err)
	}
	return errno("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}
