//go:build linux

// Package person drives the built binaries as a person would, as root and as an
// ordinary user. It is for integration tests only.
//
// State owned: the folder with the built programs, for one test binary; a home
// for each Person. Imports: standard library. Imported by: integration tests.
// Tests: those that use it.
package person

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Main builds the product, runs the tests and gives the exit code for TestMain.
// bin receives the folder of the programs.
func Main(m *testing.M, bin *string) int {
	dir, err := os.MkdirTemp("", "agentos-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// The ordinary user of these tests must reach the programs.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	build := exec.Command("go", "build", "-o", dir, "agentos/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	*bin = dir
	return m.Run()
}

// Person runs the product under one identity with a home of their own.
type Person struct {
	T    *testing.T
	Name string
	UID  uint32
	Home string
	Env  []string
	Dir  string // working directory; empty: Home
	Bin  string
}

// User is an ordinary user: another than the tests' when those are root's.
func User(t *testing.T, bin string) *Person {
	if os.Getuid() != 0 {
		return New(t, bin, "user", uint32(os.Getuid()))
	}
	// One of its own for each test binary: they run side by side, and count their
	// processes.
	return New(t, bin, "user", uint32(100_000+os.Getpid()))
}

// Everybody runs f as an ordinary user and, when the tests are root's, as root.
func Everybody(t *testing.T, bin string, f func(t *testing.T, p *Person)) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Run("root", func(t *testing.T) { f(t, New(t, bin, "root", 0)) })
	}
	t.Run("user", func(t *testing.T) { f(t, User(t, bin)) })
}

// Root is root, or a skip where the tests are not root's.
func Root(t *testing.T, bin string) *Person {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	return New(t, bin, "root", 0)
}

// New is a person with an empty home.
func New(t *testing.T, bin, name string, uid uint32) *Person {
	t.Helper()
	home, err := os.MkdirTemp("", "agentos-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if os.Getuid() == 0 {
		if err := os.Chown(home, int(uid), int(uid)); err != nil {
			t.Fatal(err)
		}
	}
	return &Person{T: t, Name: name, UID: uid, Home: home, Bin: bin}
}

// State is the default state directory.
func (p *Person) State() string { return filepath.Join(p.Home, ".local", "share", "agentos") }

// Cmd is one call of agentos, not yet started.
func (p *Person) Cmd(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(p.Bin, "agentos"), args...)
	c.Dir = p.Home
	if p.Dir != "" {
		c.Dir = p.Dir
	}
	c.Env = append([]string{"HOME=" + p.Home, "PATH=/usr/bin:/bin", "NO_COLOR=1"}, p.Env...)
	if os.Getuid() == 0 && p.UID != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.UID, Gid: p.UID}}
	}
	c.WaitDelay = 10 * time.Second
	return c
}

// Result is how a call ended.
type Result struct {
	Code     int
	Out, Err string
}

func (r Result) String() string {
	return fmt.Sprintf("exit %d\n--- stdout, its end\n%s\n--- stderr\n%s", r.Code, r.Out[max(0, len(r.Out)-3000):], r.Err)
}

// Do runs one command to its end.
func (p *Person) Do(args ...string) Result {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.T.Context()), 4*time.Minute)
	defer cancel()
	c := p.Cmd(ctx, args...)
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr = &out, &errb
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.T.Fatalf("agentos %q: %v", args, err)
	}
	return Result{c.ProcessState.ExitCode(), out.String(), errb.String()}
}

// Want runs one command and requires its exit code and texts in its output.
func (p *Person) Want(code int, texts []string, args ...string) Result {
	p.T.Helper()
	r := p.Do(args...)
	if r.Code != code {
		p.T.Fatalf("agentos %q: want exit %d, got %v", args, code, r)
	}
	for _, s := range texts {
		if !strings.Contains(r.Out+r.Err, s) {
			p.T.Errorf("agentos %q: no %q in %v", args, s, r)
		}
	}
	return r
}

// Record is one line of `audit log --json`.
type Record struct {
	Seq  json.Number    `json:"seq"`
	Kind string         `json:"kind"`
	Run  string         `json:"run"`
	Call string         `json:"call"`
	Body map[string]any `json:"body"`
}

// Log is the whole audit log.
func (p *Person) Log() []Record {
	p.T.Helper()
	r := p.Want(0, nil, "--json", "audit", "log", "--limit", "0")
	var out []Record
	for line := range strings.Lines(r.Out) {
		var rec Record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			p.T.Fatalf("line %q: %v", line, err)
		}
		out = append(out, rec)
	}
	return out
}

// Paired checks INV-01 on the whole log: every intent has exactly one outcome,
// later than it, and every denial is both.
func (p *Person) Paired() {
	p.T.Helper()
	intents, outcomes := map[string]int{}, map[string]int{}
	for _, r := range p.Log() {
		switch r.Kind {
		case "call.intent":
			intents[r.Call]++
		case "call.outcome":
			if intents[r.Call] == 0 {
				p.T.Errorf("outcome of %s before its intent", r.Call)
			}
			outcomes[r.Call]++
		}
	}
	for c, n := range intents {
		if n != 1 || outcomes[c] != 1 {
			p.T.Errorf("call %s: %d intents, %d outcomes", c, n, outcomes[c])
		}
	}
	p.Want(0, nil, "audit", "verify")
}
