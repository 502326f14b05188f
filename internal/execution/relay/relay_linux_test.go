package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/host/pty/ptytest"
)

// world is everything around a relay.
type world struct {
	t      *testing.T
	input  chan Input
	ended  chan struct{}
	closed chan struct{}
	done   chan error
	master *os.File

	mu      sync.Mutex
	out     [3]bytes.Buffer
	taken   int
	signals []string
	late    bool // output after Closed
	hold    chan struct{}
	grew    chan struct{} // capacity 1
}

func (w *world) poke() {
	select {
	case w.grew <- struct{}{}:
	default:
	}
}

func (w *world) Output(stream uint8, b []byte) error {
	if w.hold != nil {
		<-w.hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out[stream].Write(b)
	select {
	case <-w.closed:
		w.late = true
	default:
	}
	w.poke()
	return nil
}

func (w *world) Taken(n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken += n
	w.poke()
	return nil
}

func (w *world) Signal(s string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signals = append(w.signals, s)
	w.poke()
	return nil
}

func (w *world) Closed() error { close(w.closed); return nil }

// until waits for cond, which is asked with the lock held.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		w.mu.Lock()
		ok := cond()
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-w.grew:
		case <-limit:
			w.t.Fatalf("never: %s; out %.80q err %.80q taken %d signals %v", what, w.out[1].String(), w.out[2].String(), w.taken, w.signals)
		}
	}
}

func (w *world) send(in Input) {
	w.t.Helper()
	select {
	case w.input <- in:
	case <-time.After(10 * time.Second):
		w.t.Fatalf("input %+v is not accepted", in)
	}
}

func (w *world) drained() {
	w.t.Helper()
	select {
	case <-w.closed:
	case <-time.After(10 * time.Second):
		w.t.Fatal("the output never closed")
	}
}

func begin(t *testing.T, d Deps, hold chan struct{}) *world {
	w := &world{t: t, input: make(chan Input), ended: make(chan struct{}), closed: make(chan struct{}), done: make(chan error, 1), hold: hold, grew: make(chan struct{}, 1)}
	d.Input, d.Ended, d.Sink = w.input, w.ended, w
	ctx, cancel := context.WithCancel(context.Background())
	go func() { w.done <- Run(ctx, d) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-w.done:
			if err != nil {
				t.Errorf("relay: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the relay does not end")
		}
		if w.late {
			t.Error("output after the end of output")
		}
	})
	return w
}

// pipes are a program's ends.
func pipes(t *testing.T, hold chan struct{}) (w *world, stdin, stdout, stderr *os.File) {
	t.Helper()
	var r, x [3]*os.File
	for i := range r {
		var err error
		if r[i], x[i], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { r[0].Close(); x[1].Close(); x[2].Close() })
	return begin(t, Deps{Stdin: x[0], Stdout: r[1], Stderr: r[2]}, hold), r[0], x[1], x[2]
}

// tty is a terminal with the program's side. The master that the relay has is a
// blocking descriptor, as one that was received.
func tty(t *testing.T) (w *world, slave *os.File) {
	t.Helper()
	master, slave := ptytest.Open(t)
	w = begin(t, Deps{TTY: master}, nil)
	w.master = master
	return w, slave
}

func noise(n int, seed uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// 10 MB each way at once, by a program that copies, unchanged.
func TestPipesAreExact(t *testing.T) {
	t.Parallel()
	w, stdin, stdout, stderr := pipes(t, nil)
	go func() {
		_, _ = io.Copy(io.MultiWriter(stdout, stderr), stdin)
		stdout.Close()
		stderr.Close()
	}()
	data := noise(10<<20, 1)
	for b := data; len(b) > 0; {
		n := min(len(b), 1+int(b[0])*200)
		w.send(Input{Bytes: bytes.Clone(b[:n])})
		b = b[n:]
	}
	w.send(Input{EOF: true})
	w.drained()
	for i := 1; i < 3; i++ {
		if sha256.Sum256(w.out[i].Bytes()) != sha256.Sum256(data) {
			t.Errorf("stream %d: %d of %d bytes, or others", i, w.out[i].Len(), len(data))
		}
	}
	w.until("everything taken", func() bool { return w.taken == len(data) })
}

// What was written before the end arrives although nobody reads for a while.
func TestNothingIsLostAtTheEnd(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	w, _, stdout, stderr := pipes(t, hold)
	_, err := stdout.Write(noise(60<<10, 2))
	if err == nil {
		_, err = stderr.WriteString("last words")
	}
	if err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	stderr.Close()
	close(w.ended)
	select {
	case <-w.closed:
		t.Error("closed before the output was taken")
	case <-time.After(50 * time.Millisecond):
	}
	close(hold)
	w.drained()
	if w.out[1].Len() != 60<<10 || w.out[2].String() != "last words" {
		t.Errorf("%d bytes, %q", w.out[1].Len(), w.out[2].String())
	}
}

// A program that doesn't read: input is held back at the window, signals pass.
func TestUnreadInput(t *testing.T) {
	t.Parallel()
	w, stdin, _, _ := pipes(t, nil)
	for sent := 0; sent < gatewire.RunWindow; sent += 32 << 10 {
		w.send(Input{Bytes: make([]byte, 32<<10)})
	}
	w.send(Input{Signal: "TERM"})
	w.until("signal reported", func() bool { return len(w.signals) == 1 && w.signals[0] == "TERM" })
	n := 0
	for full := false; !full; n++ {
		select {
		case w.input <- Input{Bytes: make([]byte, 64<<10)}:
		case <-time.After(100 * time.Millisecond):
			full = true
		}
		if n > 20 {
			t.Fatal("input that nobody reads is accepted without bound")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stdin) }()
	w.send(Input{Bytes: []byte("x")})
}

// A program that closed its input loses what is sent; the sender goes on.
func TestClosedInput(t *testing.T) {
	t.Parallel()
	w, stdin, stdout, stderr := pipes(t, nil)
	stdin.Close()
	for range 40 {
		w.send(Input{Bytes: make([]byte, 32<<10)})
	}
	w.send(Input{EOF: true})
	w.send(Input{Bytes: []byte("after the end")})
	w.until("taken", func() bool { return w.taken == 40*32<<10+len("after the end") })
	stdout.Close()
	stderr.Close()
	w.drained()
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	w, slave := tty(t)
	ptytest.NoEcho(t, slave)
	w.send(Input{Rows: 41, Cols: 132})
	w.send(Input{Bytes: []byte("hello\r")})
	b := make([]byte, 100)
	if n, err := slave.Read(b); err != nil || string(b[:n]) != "hello\n" {
		t.Errorf("the program read %q %v", b[:n], err)
	}
	if r, c := ptytest.Size(t, slave); r != 41 || c != 132 {
		t.Errorf("window %d x %d", r, c)
	}
	// EOF on a fresh line, and after an unfinished one.
	w.send(Input{EOF: true})
	if n, err := slave.Read(b); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("end of input: %q %v", b[:n], err)
	}
	w.send(Input{Bytes: []byte("half")})
	w.send(Input{EOF: true})
	if n, err := slave.Read(b); err != nil || string(b[:n]) != "half" {
		t.Errorf("%q %v", b[:n], err)
	}
	if n, err := slave.Read(b); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("end after an unfinished line: %q %v", b[:n], err)
	}
	big := strings.Repeat("0123456789abcdef", 4096)
	go func() { _, _ = slave.WriteString(big); slave.Close(); close(w.ended) }()
	w.drained()
	if w.out[1].String() != big {
		t.Errorf("%d of %d bytes of the last output", w.out[1].Len(), len(big))
	}
}

// Signals are typed while the program lets the terminal make them, and handed
// back while it does not.
func TestTerminalSignals(t *testing.T) {
	t.Parallel()
	w, slave := tty(t) // echo is on: a typed ^C shows
	w.send(Input{Signal: "INT"})
	w.until("^C", func() bool { return strings.Contains(w.out[1].String(), "^C") })
	w.send(Input{Signal: "TSTP"})
	w.until("^Z", func() bool { return strings.Contains(w.out[1].String(), "^Z") })
	w.send(Input{Signal: "QUIT"})
	w.until("^\\", func() bool { return strings.Contains(w.out[1].String(), "^\\") })
	w.send(Input{Signal: "TERM"})
	w.until("TERM handed back", func() bool { return strings.Join(w.signals, " ") == "TERM" })
	ptytest.Raw(t, slave)
	w.send(Input{Signal: "INT"})
	w.until("INT handed back", func() bool { return strings.Join(w.signals, " ") == "TERM INT" })
}

// A terminal that takes nothing more: the signal is handed back instead.
func TestFullTerminal(t *testing.T) {
	t.Parallel()
	w, slave := tty(t)
	ptytest.Raw(t, slave)
	w.send(Input{Bytes: make([]byte, 128<<10)}) // nobody reads it
	w.until("some is taken", func() bool { return w.taken > 0 })
	// Signals on again, as a program does that leaves raw mode for a while.
	x := ptytest.Termios(t, slave)
	if x.Lflag&1 != 0 {
		t.Fatal("not raw")
	}
	ptytest.Signals(t, slave)
	w.send(Input{Signal: "INT"})
	w.send(Input{Rows: 5, Cols: 6})
	w.until("handed back", func() bool { return strings.Join(w.signals, "") == "INT" })
	if r, c := ptytest.Size(t, slave); r != 5 || c != 6 {
		t.Errorf("window %d x %d", r, c)
	}
}

// A program may close its terminal and open it again; that is not the end.
func TestTerminalReopened(t *testing.T) {
	t.Parallel()
	w, slave := tty(t)
	name := slave.Name()
	if _, err := slave.WriteString("before "); err != nil {
		t.Fatal(err)
	}
	w.until("before", func() bool { return w.out[1].Len() > 0 })
	slave.Close()
	select {
	case <-w.closed:
		t.Fatal("took a closed terminal for the end of the sandbox")
	case <-time.After(150 * time.Millisecond):
	}
	again, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.WriteString("after"); err != nil {
		t.Fatal(err)
	}
	again.Close()
	close(w.ended)
	w.drained()
	if w.out[1].String() != "before after" {
		t.Errorf("%q", w.out[1].String())
	}
}
