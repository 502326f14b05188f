//go:build linux

// Package jail carries out a sandbox plan: it starts the sandbox's first process
// (the caller's own binary again, in init mode), which builds the view, takes
// the agent's identity, locks itself and starts the command.
//
// State owned: the sandbox's first process, its namespaces and its root. Imports:
// host/{cgroup,confine,fdframe,seccomp}, lib/{fault,sandboxplan}, go-landlock,
// x/sys. Imported by: execution/jailer, cmd/agentos-launcher.
//
// Locks: Sandbox.mu, a leaf. Invariants: every step that fails ends the first
// process before the command exists, and names itself (INV-02); nothing is made
// weaker than asked; the command's view holds what the plan lists and nothing
// else; the command gets descriptors 0, 1 and 2 only; the first process ends when
// the command ends, or its lifeline or the starter's end does, and the PID
// namespace with it (INV-05). Docs: docs/spec/sandbox-plan.md,
// docs/spec/agent-syscalls.md.
// Tests: cmd/agentos-launcher/main_test.go, as root and as another user.
// Spec: AOS-14, AOS-17.
package jail

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// Error is a step that failed. It wraps a fault.
type Error struct {
	Step string // the primitive that is missing, in a few words
	Err  *fault.Error
}

// Error renders the step and the reason.
func (e *Error) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap returns the fault.
func (e *Error) Unwrap() error { return e.Err }

// failed makes an Error for a step that the host could not do.
func failed(err error, step, format string, args ...any) *Error {
	k, next := fault.Unavailable, "run `agentos doctor` to see what this host lacks"
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		k, next = fault.NotFound, "name a path that exists, or leave it out of the plan"
	case errors.Is(err, unix.ELOOP):
		k, next = fault.Usage, "give the path that `realpath` prints: no symbolic link is followed"
	case errors.Is(err, unix.EACCES):
		k, next = fault.Denied, "give this user the right to reach the path, or leave it out of the plan"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENOMEM):
		k, next = fault.Limit, "end other sandboxes, or raise the host's limit"
	}
	return &Error{step, fault.Wrap(err, k, next, format, args...)}
}

// refused makes an Error for a plan that can't be carried out.
func refused(step, next, format string, args ...any) *Error {
	return &Error{step, fault.New(fault.Usage, next, format, args...)}
}

// verdict is Error on the way from the first process to its starter.
type verdict struct {
	Step    string `json:"step"`
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
}

func (e *Error) verdict() *verdict {
	return &verdict{e.Step, string(fault.KindOf(e)), e.Err.Error(), fault.NextOf(e)}
}

func (v *verdict) err() *Error {
	return &Error{v.Step, fault.New(fault.Kind(v.Kind), v.Next, "%s", v.Message)}
}

// asError turns err into an Error with the given step unless it is one.
func asError(err error, step string) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return failed(err, step, "make sandbox")
}

// errno renders an error of one system call with its name.
func errno(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", call, err)
}
