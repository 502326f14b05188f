//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentos/internal/host/pty/ptytest"

	"golang.org/x/sys/unix"
)

// A terminal session of `agentos`, with the test as the person.
type desk struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File
	before unix.Termios
	log    string
	done   chan struct{}
	err    error // of the command, once done

	mu   sync.Mutex
	seen bytes.Buffer
	grew chan struct{} // capacity 1
}

func sit(t *testing.T, args ...string) *desk {
	t.Helper()
	d := &desk{t: t, log: filepath.Join(t.TempDir(), "log"), done: make(chan struct{}), grew: make(chan struct{}, 1)}
	d.master, d.slave = ptytest.Open(t)
	ptytest.Resize(t, d.master, 30, 90)
	d.before = ptytest.Termios(t, d.slave)
	d.cmd = launch(t, d.log, args...)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = d.slave, d.slave, d.slave
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go d.read()
	go func() { d.err = d.cmd.Wait(); close(d.done) }()
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); <-d.done })
	return d
}

// launch is agentos with the fake agentosd beside it, as scripts have it.
func launch(t *testing.T, log string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("agentos")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, args...)
	c.Env = append(os.Environ(), "FAKE_LOG="+log, "TERM=xterm", "NO_COLOR=1", "FAKE_TTY=1")
	return c
}

func (d *desk) read() {
	b := make([]byte, 4096)
	for {
		n, err := d.master.Read(b)
		d.mu.Lock()
		d.seen.Write(b[:n])
		d.mu.Unlock()
		select {
		case d.grew <- struct{}{}:
		default:
		}
		if err != nil && !errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) || err != nil && n == 0 {
			return
		}
	}
}

func (d *desk) screen() string { d.mu.Lock(); defer d.mu.Unlock(); return d.seen.String() }

func (d *desk) sees(text string) {
	d.t.Helper()
	limit := time.After(15 * time.Second)
	for !strings.Contains(d.screen(), text) {
		select {
		case <-d.grew:
		case <-limit:
			d.t.Fatalf("never saw %q in %q", text, d.screen())
		}
	}
}

func (d *desk) types(keys string) {
	d.t.Helper()
	if _, err := d.master.WriteString(keys); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) kill(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// leaves waits for the end, and checks the exit code and that the terminal has
// its mode back.
func (d *desk) leaves(code int) {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(15 * time.Second):
		d.t.Fatalf("does not end; screen %q", d.screen())
	}
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("exit code %d, want %d; screen %q", got, code, d.screen())
	}
	if after := ptytest.Termios(d.t, d.slave); after != d.before {
		d.t.Errorf("the terminal's mode changed:\n%+v\n%+v", d.before, after)
	}
}

func (d *desk) isRaw() bool {
	return ptytest.Termios(d.t, d.slave).Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
}

// logged waits until the fake wrote the line.
func logged(t *testing.T, file, line string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if b, err := os.ReadFile(file); err == nil && bytes.Contains(b, []byte(line+"\n")) {
			return
		}
		<-tick.C
	}
	b, _ := os.ReadFile(file)
	t.Fatalf("%q was never logged: %s", line, b)
}

func TestTerminalSession(t *testing.T) {
	t.Parallel()
	d := sit(t, "run", "--", "screen")
	d.sees("rootless: namespaces")
	d.sees("window 30x90")
	if !d.isRaw() {
		t.Error("the terminal is not raw while the program has it")
	}
	d.types("\x03\x1a\x04")
	d.sees(`keys "\x03\x1a\x04"`)
	ptytest.Resize(t, d.master, 41, 132)
	d.sees("window 41x132")
	d.kill(syscall.SIGINT)
	d.sees("signal INT")
	d.kill(syscall.SIGUSR1)
	d.sees("signal USR1")
	d.types("q")
	d.leaves(0)
}

// Whatever ends agentos, the terminal is as it was, and the run ends with it.
func TestTerminalIsRestored(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sig  syscall.Signal
		code int
	}{"TERM": {syscall.SIGTERM, 143}, "HUP": {syscall.SIGHUP, 129}} {
		d := sit(t, "run", "--", "screen")
		d.sees("window 30x90")
		if !d.isRaw() {
			t.Errorf("%s: not raw", name)
		}
		d.kill(tt.sig)
		d.leaves(tt.code)
		logged(t, d.log, "gone")
	}
	// agentosd dies under it.
	d := sit(t, "run", "--", "screen")
	d.sees("window 30x90")
	for _, pid := range childrenOf(t, d.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	d.leaves(1)
	// A run that can't start leaves the terminal alone.
	d = sit(t, "run", "--", "refused")
	d.leaves(5)
	d.sees("user namespaces are forbidden here")
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	d := sit(t, "run", "--", "screen")
	d.sees("window 30x90")
	d.kill(syscall.SIGTSTP)
	waitState(t, d.cmd.Process.Pid, "T")
	if ptytest.Termios(t, d.slave) != d.before {
		t.Error("stopped with a raw terminal")
	}
	ptytest.Resize(t, d.master, 20, 70)
	d.kill(syscall.SIGCONT)
	d.sees("window 20x70")
	if !d.isRaw() {
		t.Error("not raw again")
	}
	d.types("q")
	d.leaves(0)
}

// Only what is harmless reaches the terminal; at the end it is itself again.
func TestHostileProgram(t *testing.T) {
	t.Parallel()
	d := sit(t, "run", "--", "hostile")
	d.sees("\x1b[6n") // a question: it may ask while it has the terminal
	d.sees("\x1b[5n") // ours, at the end
	d.types("\x1b[1;1R\x1b[0n")
	d.leaves(0)
	got := d.screen()
	for _, bad := range []string{"]52", "21t", "\x9b31", "tmux", "\x05", "\x1bP", "]0;x", "]0;root"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q reached the terminal: %q", bad, got)
		}
	}
	for _, want := range []string{"ok\x1b[1mbold", "\x1b]0;[agentos hostile] root\x1b\\", "\x1b[?1049h", "\x1b[?1049l", "\x1b[23;0t", "writes through␛[2J"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing: %q", want, got)
		}
	}
	// The late answers were taken out of the input: nothing is typed into a shell.
	ptytest.NoEcho(t, d.slave)
	d.types("next\n")
	b := make([]byte, 100)
	if n, err := d.slave.Read(b); err != nil || string(b[:n]) != "next\n" {
		t.Errorf("the shell would read %q %v", b[:n], err)
	}
}

func TestLogsAreFiltered(t *testing.T) {
	t.Parallel()
	d := sit(t, "logs", "nightly")
	d.sees("\x1b[?1049l")
	d.leaves(0)
	got := d.screen()
	if strings.Contains(got, "]52") || strings.Contains(got, "\x1b[6n") || !strings.Contains(got, "bold") {
		t.Errorf("%q", got)
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	d := sit(t, "attach", "nightly")
	d.sees("window 29x90") // a change, so that the program draws itself
	d.sees("window 30x90")
	d.types("x")
	d.sees(`keys "x"`)
	d.kill(syscall.SIGTERM)
	d.leaves(0)
	d.sees("the run goes on")
	logged(t, d.log, "detached")
}

// Ctrl-C before the program runs cancels the start.
func TestEarlyInterrupt(t *testing.T) {
	t.Parallel()
	d := sit(t, "run", "--", "slow")
	logged(t, d.log, "args --inherit --share")
	d.types("\x03")
	d.leaves(130)
}

// 10 MB each way through pipes, unchanged, both streams apart.
func TestPipes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(4, 2))
	data := make([]byte, 10<<20)
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	c := launch(t, filepath.Join(t.TempDir(), "log"), "run", "-q", "--", "cat")
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(data), &out, &errs
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if got := bytes.TrimPrefix(out.Bytes(), []byte("ready\r\n")); sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("standard output: %d of %d bytes, or others", len(got), len(data))
	}
	if sha256.Sum256(errs.Bytes()) != sha256.Sum256(data) {
		t.Errorf("standard error: %d of %d bytes, or others", errs.Len(), len(data))
	}
}

// piped is agentos without a terminal, with its output on a pipe.
func piped(t *testing.T, stdin io.Reader, args ...string) (c *exec.Cmd, out *bytes.Buffer, log string, sees func(string)) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	c = launch(t, log, args...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin, c.Stdout, c.Stderr = stdin, w, w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { _ = c.Process.Kill(); r.Close() })
	out = &bytes.Buffer{}
	return c, out, log, func(text string) {
		t.Helper()
		_ = r.SetReadDeadline(time.Now().Add(15 * time.Second))
		b := make([]byte, 4096)
		for !strings.Contains(out.String(), text) {
			n, err := r.Read(b)
			out.Write(b[:n])
			if err != nil {
				t.Fatalf("never saw %q in %q: %v", text, out, err)
			}
		}
	}
}

// Signals reach a program that reads none of its endless input.
func TestSignalsPassInput(t *testing.T) {
	t.Parallel()
	c, _, log, sees := piped(t, endless{}, "run", "-q", "--", "deaf")
	sees("ready")
	for _, s := range []struct {
		sig  syscall.Signal
		name string
	}{{syscall.SIGINT, "INT"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGUSR2, "USR2"}} {
		if err := c.Process.Signal(s.sig); err != nil {
			t.Fatal(err)
		}
		sees("signal " + s.name)
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	logged(t, log, "gone") // the third that asks to end
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d", code)
	}
}

func TestTermIsForwarded(t *testing.T) {
	t.Parallel()
	c, _, log, sees := piped(t, strings.NewReader(""), "run", "-q", "--", "listen")
	sees("eof")
	_ = c.Process.Signal(syscall.SIGTERM)
	sees("signal TERM")
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d", code)
	}
	logged(t, log, "signal TERM")
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// childrenOf lists the direct children of a process.
func childrenOf(t *testing.T, pid int) (out []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread is gone
		}
		for _, w := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(w); err == nil {
				out = append(out, n)
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("no agentosd found")
	}
	return out
}

// waitState waits until the kernel shows the process in the state.
func waitState(t *testing.T, pid int, state string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, ok := strings.Cut(string(b), ") "); ok && strings.HasPrefix(rest, state) {
			return
		}
		<-tick.C
	}
	t.Fatalf("process %d never was in state %s", pid, state)
}
