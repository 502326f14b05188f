package run

import (
	"io"
	"os"
	"sync"

	"agentos/internal/cli"
	"agentos/internal/lib/fault"

	"golang.org/x/term"
)

// terminal is the person's terminal. Its mode is changed while a program has it
// and given back in every case. Safe for concurrent use.
type terminal struct {
	in *os.File

	mu  sync.Mutex
	old *term.State // while raw
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func openTerminal(e *cli.Env) (*terminal, error) {
	f, ok := e.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, fault.New(fault.Usage, "leave out --tty, or start it in a terminal", "use terminal: standard input is none")
	}
	return &terminal{in: f}, nil
}

// size is the window in cells; 24 x 80 when the terminal doesn't know.
func (t *terminal) size() (rows, cols uint32) {
	w, h, err := term.GetSize(int(t.in.Fd()))
	if err != nil || w <= 0 || h <= 0 || w > 1<<15 || h > 1<<15 {
		return 24, 80
	}
	return uint32(h), uint32(w)
}

// raw makes every key a byte for the program.
func (t *terminal) raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old != nil {
		return nil
	}
	old, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "run it without a terminal: --tty=false", "prepare terminal")
	}
	t.old = old
	return nil
}

// isRaw reports whether lines need a carriage return.
func (t *terminal) isRaw() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.old != nil
}

// restore gives the mode back; nothing to do on a nil or cooked terminal.
func (t *terminal) restore() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old != nil {
		_ = term.Restore(int(t.in.Fd()), t.old) // the terminal may be gone
		t.old = nil
	}
}

// guard is deferred in every goroutine of a session, which sets done at its end:
// a panic ends the process without running what other goroutines deferred.
func (t *terminal) guard(done *bool) {
	if !*done {
		t.restore()
	}
}
