//go:build linux

// Package handover passes a client's connection from the agentosd that the
// client started to the one that serves the state directory, so that runs of one
// owner share one gate, one ledger and one log.
//
// State owned: the listening socket control.sock in the state directory (0700,
// so only its owner and root reach it). Imports: host/fdframe, lib/fault,
// go-json-experiment/json. Imported by: cmd/agentosd, control/daemon.
// Invariants: only a process of the same user may hand over (peer credentials);
// a message is bounded before it is parsed; nothing is handed over unless the
// server said so. Format: docs/spec/handover.md. Tests: handover_test.go,
// FuzzDecode.
package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"agentos/internal/host/fdframe"
	"agentos/internal/lib/fault"
)

// MaxMessage bounds one message in bytes.
const MaxMessage = 256 << 10

// accepted is the server's answer.
const accepted = "accepted"

// replyTimeout is how long a server may take to answer.
const replyTimeout = 5 * time.Second

// socketName is the socket's name in the state directory.
const socketName = "control.sock"

// Offer is what comes with a connection: the client's settings, for the server
// to load as if it had been started by that client.
type Offer struct {
	Args []string `json:"args"` // lib/setting's form
	Env  []string `json:"env"`  // NAME=value: AGENTOS_* and XDG_*
	Home string   `json:"home"`
	Dir  string   `json:"dir"`
}

// FromProcess is the offer of this process's client.
func FromProcess(args []string) Offer {
	o := Offer{Args: args}
	o.Home, _ = os.UserHomeDir()
	o.Dir, _ = os.Getwd()
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "AGENTOS_") || strings.HasPrefix(kv, "XDG_") {
			o.Env = append(o.Env, kv)
		}
	}
	return o
}

// ConfigDir is the client's folder of configuration files: XDG_CONFIG_HOME, or
// .config in its home; empty when it has neither.
func (o Offer) ConfigDir() string {
	for _, kv := range o.Env {
		if dir, ok := strings.CutPrefix(kv, "XDG_CONFIG_HOME="); ok && filepath.IsAbs(dir) {
			return dir
		}
	}
	if !filepath.IsAbs(o.Home) {
		return ""
	}
	return filepath.Join(o.Home, ".config")
}

// Decode parses an offer strictly.
func Decode(b []byte) (Offer, error) {
	var o Offer
	if len(b) > MaxMessage {
		return o, fmt.Errorf("decode offer: %d bytes, limit %d", len(b), MaxMessage)
	}
	if err := json.Unmarshal(b, &o, json.RejectUnknownMembers(true)); err != nil {
		return o, fmt.Errorf("decode offer: %w", err)
	}
	return o, nil
}

// at runs f with a path to name in dir that is short enough for a socket
// address, whatever dir's length.
func at(dir, name string, f func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}

// ErrNoServer means that nobody serves the state directory.
var ErrNoServer = errors.New("no agentosd serves this state directory")

// Give hands conn over to the server of stateDir. On nil the connection is the
// server's. ErrNoServer when there is none; any other error is a server that
// refused or broke.
func Give(stateDir string, o Offer, conn *net.UnixConn) error {
	var c *net.UnixConn
	err := at(stateDir, socketName, func(path string) (err error) {
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNoServer
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "see who owns the state directory's control.sock", "reach the running agentosd")
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return fault.Wrap(err, fault.Internal, "", "reach the running agentosd")
	}
	f, err := conn.File()
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "hand over the client")
	}
	defer f.Close()
	b, err := json.Marshal(o)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "hand over the client")
	}
	w := fdframe.New(c, MaxMessage)
	if err := w.Write(b, f); err != nil {
		return ErrNoServer // it closed in this moment: it ends
	}
	answer, files, err := w.Read()
	for _, x := range files {
		_ = x.Close()
	}
	if err != nil {
		return ErrNoServer
	}
	if string(answer) != accepted {
		return fault.New(fault.Conflict, "wait for its runs to end, or stop them with `agentos stop`", "the running agentosd refused: %.500s", answer)
	}
	return nil
}

// Listener is the server's end. Close it once.
type Listener struct {
	l   *net.UnixListener
	dir string
}

// Listen makes the socket. Whoever calls it holds the state directory's lock, so
// a socket that is there already is a dead one's.
func Listen(stateDir string) (*Listener, error) {
	l := &Listener{dir: stateDir}
	err := at(stateDir, socketName, func(path string) (err error) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if l.l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
			return err
		}
		l.l.SetUnlinkOnClose(false)
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "check the state directory's owner and mode", "make the control socket")
	}
	return l, nil
}

// Close removes the socket and ends Serve.
func (l *Listener) Close() error {
	_ = os.Remove(filepath.Join(l.dir, socketName))
	return l.l.Close()
}

// Serve takes connections until the listener is closed and calls take for each
// in a goroutine of its own; it returns when all of them have returned.
func (l *Listener) Serve(ctx context.Context, take func(ctx context.Context, conn *net.UnixConn, o Offer)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fault.Wrap(err, fault.Internal, "", "accept a client")
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if conn, o, err := receive(c); err == nil {
				take(ctx, conn, o)
			}
		}()
	}
}

// receive checks who it is, takes one offer with its connection and accepts it.
func receive(c *net.UnixConn) (*net.UnixConn, Offer, error) {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, Offer{}, err
	}
	w := fdframe.New(c, MaxMessage)
	b, files, err := w.Read()
	if err != nil {
		return nil, Offer{}, err
	}
	// Read first, so that a refusal arrives; but not parsed before the check.
	var o Offer
	if err = samePerson(c); err == nil {
		o, err = Decode(b)
	}
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%d descriptors, want 1", len(files))
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		_ = w.Write([]byte(err.Error()))
		return nil, Offer{}, err
	}
	conn, err := fdframe.Inherited(files[0])
	if err != nil {
		return nil, Offer{}, err
	}
	if err := w.Write([]byte(accepted)); err != nil {
		_ = conn.Close()
		return nil, Offer{}, err
	}
	return conn, o, nil
}

// samePerson compares the peer's UID, as the kernel took it at connect, with
// this process's.
func samePerson(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *syscall.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if cerr != nil {
		return cerr
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("UID %d may not use the agentosd of UID %d", cred.Uid, os.Geteuid())
	}
	return nil
}
