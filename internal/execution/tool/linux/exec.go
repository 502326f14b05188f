//go:build linux

package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// childEnv is the whole environment of a child: English messages, UTF-8 text.
var childEnv = []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin", "TZ=UTC"}

const maxStderr = 4 << 10 // bytes kept of a child's complaints

// stream runs a program with a fixed argument list and hands its standard output
// to read as it comes. The child gets no input, no environment but childEnv, and
// is killed when ctx ends, when read fails, or when this process dies. An exit
// status other than 0 is an error with the first of what the child complained;
// complaint is that too when the child ended well.
func stream(ctx context.Context, program string, argv []string, read func(io.Reader) error) (complaint string, err error) {
	// The kernel sends the death signal when the thread that forked ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, argv...)
	cmd.Env, cmd.Dir = childEnv, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	complaints := &head{limit: maxStderr}
	cmd.Stderr = complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("run %q: %w", program, err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("run %q: %w", program, err)
	}
	readErr := read(out)
	if readErr != nil {
		cancel()
	}
	waitErr := cmd.Wait()
	complaint = line(strings.TrimSpace(complaints.String()), 512)
	switch {
	case readErr != nil && !errors.Is(readErr, errEnough):
		return complaint, readErr
	case readErr == nil && waitErr != nil:
		return complaint, &exitError{program, waitErr, complaint}
	}
	return complaint, nil
}

// exitError is a child that ended with another status than 0.
type exitError struct {
	program   string
	err       error
	complaint string // what it wrote to standard error, cleaned
}

func (e *exitError) Error() string {
	return fmt.Sprintf("run %q: %v: %s", e.program, e.err, e.complaint)
}

// errEnough is returned by a read function of stream that needs no more output.
var errEnough = errors.New("enough output read")

// head keeps the first limit bytes written to it and drops the others.
type head struct {
	strings.Builder
	limit int
}

func (h *head) Write(p []byte) (int, error) {
	if room := h.limit - h.Len(); room > 0 {
		h.Builder.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
