//go:build linux

// Command probe makes the attempts of package attempt, as an unmodified program
// in a sandbox would. It is no part of the product.
//
//	probe one TARGETS NAME      one attempt; prints a result as JSON
//	probe batch TARGETS NAME…   each in a process of its own, a result a line
//	probe first COMMAND…        a command as PID 1 of a namespace of its own
//	probe enter LAYERS COMMAND… a command with some layers of a running sandbox
//	probe caller TARGETS CMD…   leaves things lying about, then becomes CMD
//	probe victim CANARY FILE    is looked for; tells on stdout where it is
//	probe tree MARK             a family that doesn't want to end
//
// Tests: escape_test.go of integration/sandbox.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentos/integration/sandbox/attempt"
)

// perAttempt bounds one attempt.
const perAttempt = 8 * time.Second

// self is this program, to be run again.
const self = "/proc/self/exe"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("no command")
	}
	switch rest := args[1:]; {
	case args[0] == "nop":
		return nil
	case args[0] == "whoami":
		_, err := fmt.Println(attempt.WhoAmI())
		return err
	case args[0] == "mount-here":
		return attempt.MountHere()
	case args[0] == "sleep":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGTERM)
		<-signals
		return nil
	case args[0] == "one" && len(rest) == 2:
		return one(rest[0], rest[1])
	case args[0] == "batch" && len(rest) > 1:
		return batch(rest[0], rest[1:])
	case args[0] == "first" && len(rest) > 1:
		return first(rest)
	case args[0] == "caller" && len(rest) > 1:
		return caller(rest[0], rest[1:])
	case args[0] == "victim" && len(rest) == 2:
		return victim(rest[0], rest[1])
	case args[0] == "tree" && len(rest) == 1:
		return tree(rest[0])
	case args[0] == "enter" && len(rest) > 1:
		return enter(rest[0], rest[1:])
	}
	return fmt.Errorf("unknown command %q", args)
}

// first runs a command as the first process of a PID namespace, with its /proc.
func first(args []string) error {
	if os.Getpid() != 1 {
		c := exec.Command(self, append([]string{"first"}, args...)...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
		return c.Run()
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return run(args)
}

func load(path string) (*attempt.Targets, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := &attempt.Targets{}
	return t, json.Unmarshal(b, t)
}

func one(path, name string) error {
	t, err := load(path)
	if err != nil {
		return err
	}
	return print(attempt.Run(name, t))
}

func print(r attempt.Result) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = fmt.Println(string(b))
	}
	return err
}

// batch runs each attempt in a child: an attempt may cost its process.
func batch(targets string, names []string) error {
	signal.Ignore(unix.SIGWINCH)
	how := private()
	for _, name := range names {
		if err := print(child(targets, name, how)); err != nil {
			return err
		}
	}
	return nil
}

// private gives each attempt mounts of its own where that is possible, which is
// where attempts on mounts may work.
func private() *syscall.SysProcAttr {
	how := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	c := exec.Command(self, "nop")
	c.SysProcAttr = how
	if c.Run() != nil {
		return nil
	}
	return how
}

func child(targets, name string, how *syscall.SysProcAttr) attempt.Result {
	ctx, cancel := context.WithTimeout(context.Background(), perAttempt)
	defer cancel()
	c := exec.CommandContext(ctx, self, "one", targets, name)
	c.SysProcAttr = how
	c.Stdin = os.Stdin
	c.WaitDelay = time.Second
	out, err := c.Output()
	var r attempt.Result
	if json.Unmarshal(out, &r) == nil && r.Name == name {
		return r
	}
	detail := "no result"
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ctx.Err() == nil {
		return attempt.Result{Name: name, Errno: unix.SignalName(ws.Signal()), Detail: "the process was ended"}
	}
	if err != nil {
		detail = err.Error()
		var ee *exec.ExitError
		if errors.As(err, &ee) && len(ee.Stderr) > 0 {
			detail += ": " + string(ee.Stderr[:min(len(ee.Stderr), 200)])
		}
	}
	return attempt.Result{Name: name, Detail: detail}
}

// caller is a careless person: a key in the session, a secret in the
// environment, an open descriptor. Then it becomes the command.
func caller(targets string, argv []string) error {
	t, err := load(targets)
	if err != nil {
		return err
	}
	// A session keyring of its own, so that nobody else's is touched. The thread
	// that joins is the one that becomes the command.
	lockThread()
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("join session keyring: %w", err)
	}
	if _, err := unix.AddKey("user", t.Key, []byte(t.Canary), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
		return fmt.Errorf("add key: %w", err)
	}
	fd, err := unix.Open(t.Secret, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	if err := unix.Dup2(fd, 9); err != nil {
		return err
	}
	signal.Ignore(unix.SIGHUP)
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	env := append(os.Environ(), "ESCAPE_TOKEN="+t.Canary, "AWS_SECRET_ACCESS_KEY="+t.Canary, "INNOCENT="+t.Canary)
	return syscall.Exec(path, argv, env)
}

// victim holds the canary in its memory, environment and arguments.
func victim(canary, file string) error {
	mine := []byte(strings.Clone(canary))
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	hits := make(chan os.Signal, 64)
	signal.Notify(hits, unix.SIGWINCH)
	b, err := json.Marshal(attempt.Victim{PID: os.Getpid(), Address: addressOf(mine), FD: int(f.Fd())})
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = os.Stdin.Read(make([]byte, 1)) // the test hangs up
	}()
	for {
		select {
		case <-hits:
			fmt.Println("hit")
		case <-done:
			return f.Close()
		}
	}
}
