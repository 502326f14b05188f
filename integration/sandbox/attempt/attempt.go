//go:build linux

// Package attempt is what an agent that wants out of its sandbox tries: each
// attempt is one function that says whether it worked. The same functions run
// outside, where they must work, and inside, where they must not; they know
// nothing of the product.
//
// State owned: none. Imports: x/sys/unix. Imported by: integration/sandbox and
// its probe, nothing that ships. Invariants: an attempt harms nothing where it
// works: what would is tried in namespaces that the test made, or stops after
// the kernel's check of permission.
// Tests: escape_test.go of integration/sandbox.
package attempt

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Targets are the things outside that attempts reach for. The test makes them.
type Targets struct {
	Workspace string            // where the sandbox may write
	Canary    string            // what every secret contains
	Secret    string            // a file outside that anybody may read, with the canary
	Files     map[string]string // further files outside, by what they stand for
	ReadOnly  string            // a granted folder that may not be written
	Denied    string            // a file in the workspace that was denied
	Link      string            // a link in the workspace, made before, to Secret
	Sockets   map[string]string // pathname sockets by kind
	Abstract  string            // name of an abstract stream socket
	Datagram  string            // name of an abstract datagram socket
	TCP       map[string]string // addresses of listeners by kind
	UDP       string
	DNS       string
	HostIP    string
	Setuid    string            // a copy of the probe that is root's and setuid
	Filecaps  string            // a copy of the probe with file capabilities
	HostNS    map[string]uint64 // inodes of the test's own namespaces
	Victim    Victim
	Key       string // description of a key in the caller's session keyring
	Shm       int    // a SysV segment with the canary
	Queue     string // a POSIX message queue
	TTY       string // the caller's terminal
	TTYDev    uint64 // the file system that it is on
	Limits    Limits
}

// Victim is a process outside, of the caller's UID.
type Victim struct {
	PID     int
	Address uintptr // of the canary in its memory
	FD      int     // open on Secret
}

// Limits are numbers beyond what the sandbox was given.
type Limits struct {
	PIDs, Files               int
	Memory, Tmp, Shm, OneFile int64
}

// Result is how one attempt went.
type Result struct {
	Name      string `json:"name"`
	Succeeded bool   `json:"succeeded"`
	Errno     string `json:"errno,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// Func is an attempt. Nil means that it worked; the text says what it got.
type Func func(t *Targets) (string, error)

// errNothing is for attempts that found nothing to work on.
var errNothing = errors.New("nothing of it is in sight")

// All returns every attempt by name.
func All() map[string]Func {
	all := map[string]Func{}
	for _, group := range []map[string]Func{
		namespaces(), procfs(), processes(), signals(), keys(), sockets(), network(), devices(),
		mounts(), files(), ipc(), privileges(), kernel(), terminal(), cgroups(), inherited(), resources(), setid(),
	} {
		maps.Copy(all, group)
	}
	return all
}

// Names returns the names of all attempts in order.
func Names() []string { return slices.Sorted(maps.Keys(All())) }

// Run makes the attempt name.
func Run(name string, t *Targets) Result {
	f := All()[name]
	if f == nil {
		return Result{Name: name, Detail: "no such attempt"}
	}
	detail, err := f(t)
	return Report(name, detail, err)
}

// Report makes a result of what an attempt returned.
func Report(name, detail string, err error) Result {
	r := Result{Name: name, Succeeded: err == nil, Detail: detail}
	if err == nil {
		return r
	}
	r.Detail = err.Error()
	var no syscall.Errno
	switch {
	case errors.As(err, &no):
		r.Errno = unix.ErrnoName(no)
	case errors.As(err, new(*net.DNSError)):
		r.Errno = "no answer"
	case errors.Is(err, errNothing) || errors.Is(err, fs.ErrNotExist):
		r.Errno = "ENOENT"
	}
	return r
}

// passed turns the error that a call gives after its check of permission into
// success: the call itself was made impossible on purpose.
func passed(err error, after syscall.Errno, call string) (string, error) {
	if errors.Is(err, after) || err == nil {
		return call + " passed its check of permission", nil
	}
	return "", fmt.Errorf("%s: %w", call, err)
}

// did turns an error into a result that names the call.
func did(call string, err error) (string, error) {
	if err != nil {
		return "", fmt.Errorf("%s: %w", call, err)
	}
	return call + " worked", nil
}

// errno of a raw call: 0 is no error.
func errnoOf(e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}
