//go:build linux

// Package sandbox attacks the built product from inside: an escape suite over
// `agentos run`, with positive controls and with each layer taken away in turn.
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/escape-suite.md")

// bin is where TestMain built the product and the probe.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "agentos-escape-bin-")
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
	bin = dir
	build := exec.Command("go", "build", "-o", dir, "agentos/cmd/...", "agentos/integration/sandbox/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// ordinary is the UID of the person who isn't root.
const ordinary = 4321

// root reports whether the suite can do all of its work. As an ordinary user it
// does the rootless half.
func root() bool { return os.Getuid() == 0 }

// people are those who run the product in these tests.
func people() map[string]int {
	if !root() {
		return map[string]int{"rootless": os.Getuid()}
	}
	return map[string]int{"full": 0, "rootless": ordinary}
}

// command prepares a program as uid, in an environment of its own.
func command(ctx context.Context, uid int, home, dir, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin", "NO_COLOR=1"}
	if root() && uid != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	c.WaitDelay = 5 * time.Second
	return c
}

type result struct {
	code     int
	out, err string
}

func finish(t *testing.T, c *exec.Cmd) result {
	t.Helper()
	var out, errb bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &out
	}
	c.Stderr = &errb
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v %s", c.Args, err, errb.String())
	}
	return result{c.ProcessState.ExitCode(), out.String(), errb.String()}
}

func agentos() string { return filepath.Join(bin, "agentos") }

// must fails the test on an error of the suite's own preparations.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
