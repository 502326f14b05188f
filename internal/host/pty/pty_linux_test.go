package pty

import (
	"errors"
	"os"
	"testing"
	"time"

	"agentos/internal/host/pty/ptytest"
)

func TestSizeAndMode(t *testing.T) {
	t.Parallel()
	master, slave := ptytest.Open(t)
	if err := SetSize(master, 33, 101); err != nil {
		t.Fatal(err)
	}
	if r, c := ptytest.Size(t, slave); r != 33 || c != 101 {
		t.Errorf("the program sees %d x %d", r, c)
	}
	m, err := ModeOf(master)
	if want := (Mode{true, true, 3, 0x1c, 0x1a, 4}); err != nil || m != want {
		t.Errorf("cooked: %+v %v", m, err)
	}
	ptytest.Raw(t, slave)
	if m, err = ModeOf(master); err != nil || m.Signals || m.Canonical {
		t.Errorf("raw: %+v %v", m, err)
	}
}

func TestNotATerminal(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := SetSize(w, 1, 1); err == nil {
		t.Error("set the size of a pipe")
	}
	if _, err := ModeOf(w); err == nil {
		t.Error("read the mode of a pipe")
	}
}

// Close ends a read of an adopted descriptor that was blocking.
func TestAdopt(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_ = r.Fd() // blocking, as a received descriptor is
	a, err := Adopt(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the original is still open: %v", err)
	}
	done := make(chan error)
	go func() { _, err := a.Read(make([]byte, 1)); done <- err }()
	time.AfterFunc(20*time.Millisecond, func() { a.Close() })
	select {
	case err := <-done:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("read ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("close does not end a read")
	}
	if _, err := Adopt(r); err == nil {
		t.Error("adopted a closed file")
	}
}
