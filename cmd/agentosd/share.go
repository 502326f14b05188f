//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentos/internal/control/handover"
	"agentos/internal/lib/fault"
)

// readyFD is where a started server says that it listens, or why it can't.
const readyFD = 3

const readyWord = "ready\n"

// startTimeout bounds how long a server may take to listen: it may have to
// recover from a crash first.
const startTimeout = 30 * time.Second

// giveAway hands the client over to the agentosd that serves the state
// directory; share starts one if there is none. False: nobody took it.
func giveAway(ctx context.Context, share bool, self string, args []string, stateDir string, conn *net.UnixConn) (bool, error) {
	offer := handover.FromProcess(args)
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		err := handover.Give(stateDir, offer, conn)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, handover.ErrNoServer) {
			return false, err
		}
		if !share {
			return false, nil
		}
		// Others may be starting one in this moment, or it ends just now: who holds
		// the state's lock is the one to come back to.
		err = startServer(ctx, self, args, stateDir)
		if err != nil && fault.KindOf(err) != fault.Conflict {
			return false, err
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(settleTime / 100):
		}
	}
}

// settleTime is how long clients that start together may take to agree on one
// agentosd.
const settleTime = 5 * time.Second

// startServer starts a shared agentosd in a session of its own, so that it
// outlives this client and its terminal, and waits until it listens.
func startServer(ctx context.Context, self string, args []string, stateDir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "start a shared agentosd")
	}
	defer r.Close()
	cmd := exec.Command(self, append([]string{"--serve"}, args...)...)
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// It outlives this client, so it keeps nothing of it: no descriptor that was
	// left open for us, and of the environment only what settings are read from.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fault.Wrap(err, fault.Unavailable, "use linux 5.11 or newer", "keep descriptors from the shared agentosd")
	}
	cmd.Env = append(handover.FromProcess(nil).Env, "HOME="+os.Getenv("HOME"), "PATH="+os.Getenv("PATH"))
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "reinstall AgentOS", "start a shared agentosd")
	}
	go func() { _ = cmd.Wait() }()
	if err := r.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fault.Wrap(err, fault.Internal, "", "start a shared agentosd")
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
	defer stop()
	b, err := io.ReadAll(io.LimitReader(r, 8<<10))
	if strings.HasPrefix(string(b), readyWord) {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.Timeout, "see "+filepath.Join(stateDir, logName), "start a shared agentosd")
	}
	return failure(string(b), stateDir)
}

// failure rebuilds the fault that a server reported: its kind's name on the
// first line, its message on the second, its next step on the third.
func failure(text, stateDir string) error {
	f := strings.SplitN(strings.TrimSuffix(text, "\n"), "\n", 3)
	if len(f) < 3 {
		return fault.New(fault.Internal, "see "+filepath.Join(stateDir, logName), "a shared agentosd ended while it started")
	}
	return fault.New(fault.Kind(f[0]), f[2], "%s", f[1])
}

const logName = "agentosd.log"

const maxLog = 1 << 20 // bytes; a longer one is started anew

// serve is the shared agentosd itself.
func serve(ctx context.Context, load loader) error {
	ready := os.NewFile(readyFD, "ready")
	err := serveWith(ctx, load, func() {
		_, _ = io.WriteString(ready, readyWord)
		_ = ready.Close()
	})
	if err != nil {
		next := fault.NextOf(err)
		_, _ = io.WriteString(ready, string(fault.KindOf(err))+"\n"+line(err.Error())+"\n"+line(next)+"\n")
	}
	return err
}

func line(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

func serveWith(ctx context.Context, load loader, ready func()) error {
	d, settings, err := load()
	if err != nil {
		return err
	}
	// Settings may name relative paths; from here on no folder of the client's is
	// held.
	if err := os.Chdir("/"); err != nil {
		return fault.Wrap(err, fault.Internal, "", "leave the client's folder")
	}
	err = d.Serve(ctx, func() {
		redirect(filepath.Join(settings.Config.StateDir, logName))
		ready()
	})
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// redirect puts standard error into the log, now that there is a directory for
// it. Without one it stays where it was, which is nowhere.
func redirect(path string) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | syscall.O_NOFOLLOW
	if st, err := os.Lstat(path); err == nil && st.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_ = syscall.Dup3(int(f.Fd()), 2, 0)
}
