package relay

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/pty/ptytest"
)

// session is Serve with the test as gate and as sandbox.
type session struct {
	t       *testing.T
	gate    *fdframe.Conn
	sandbox *fdframe.Conn
	done    chan error
}

func conns(t *testing.T) (near, far *fdframe.Conn) {
	t.Helper()
	a, b, err := fdframe.Pair()
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*fdframe.Conn
	for i, f := range []*os.File{a, b} {
		u, err := fdframe.Inherited(f)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = fdframe.New(u, gatewire.MaxMessage)
		t.Cleanup(func() { u.Close() })
	}
	return out[0], out[1]
}

func serving(t *testing.T, tty bool) *session {
	t.Helper()
	s := &session{t: t, done: make(chan error, 1)}
	var wire, lifeline *fdframe.Conn
	s.gate, wire = conns(t)
	s.sandbox, lifeline = conns(t)
	go func() { s.done <- Serve(context.Background(), wire, lifeline, tty) }()
	return s
}

func (s *session) send(in gatewire.RunInput, blob []byte) {
	s.t.Helper()
	b, err := gatewire.EncodeDown(gatewire.Down{RunInput: &in}, blob)
	if err == nil {
		err = s.gate.Write(b)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) recv() (gatewire.Up, string) {
	s.t.Helper()
	b, _, err := s.gate.Read()
	if err != nil {
		s.t.Fatal(err)
	}
	m, blob, err := gatewire.DecodeUp(b)
	if err != nil {
		s.t.Fatal(err)
	}
	return m, string(blob)
}

// ends waits for Serve and checks that the lifeline went with it.
func (s *session) ends() error {
	s.t.Helper()
	select {
	case err := <-s.done:
		if _, _, rerr := s.sandbox.Read(); !errors.Is(rerr, io.EOF) {
			s.t.Errorf("the lifeline is not closed: %v", rerr)
		}
		return err
	case <-time.After(10 * time.Second):
		s.t.Fatal("the session does not end")
		return nil
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	s := serving(t, true)
	s.send(gatewire.RunInput{}, []byte("early\n")) // before the sandbox is there
	master, slave := ptytest.Open(t)
	ptytest.NoEcho(t, slave)
	if err := s.sandbox.Write([]byte(`{"ready":true}`), master); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := slave.Read(b); err != nil || string(b[:n]) != "early\n" {
		t.Fatalf("%q %v", b[:n], err)
	}
	if m, _ := s.recv(); m.RunTaken == nil || m.RunTaken.Bytes != 6 {
		t.Errorf("%+v", m)
	}
	if _, err := slave.WriteString("out"); err != nil {
		t.Fatal(err)
	}
	if m, blob := s.recv(); m.RunOutput == nil || m.RunOutput.Stream != 1 || blob != "out" {
		t.Errorf("%+v %q", m, blob)
	}
	s.send(gatewire.RunInput{Signal: "HUP"}, nil)
	if m, _ := s.recv(); m.RunSignal == nil || m.RunSignal.Signal != "HUP" {
		t.Errorf("%+v", m)
	}
	slave.Close()
	s.sandbox.Close()
	if m, _ := s.recv(); m.RunClosed == nil {
		t.Errorf("%+v", m)
	}
	s.gate.Close()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

// The gate's process goes: the lifeline closes at once, whatever the program does.
func TestGateGone(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{false, true} {
		s := serving(t, true)
		if ready {
			master, _ := ptytest.Open(t)
			if err := s.sandbox.Write([]byte(`{"ready":true}`), master); err != nil {
				t.Fatal(err)
			}
		}
		s.gate.Close()
		if err := s.ends(); err != nil {
			t.Errorf("ready %v: %v", ready, err)
		}
	}
}

// No sandbox came to be: the output is over, input goes nowhere.
func TestNoSandbox(t *testing.T) {
	t.Parallel()
	s := serving(t, false)
	s.sandbox.Close()
	if m, _ := s.recv(); m.RunClosed == nil {
		t.Errorf("%+v", m)
	}
	s.send(gatewire.RunInput{}, []byte("x"))
	if m, _ := s.recv(); m.RunTaken == nil {
		t.Errorf("%+v", m)
	}
	s.gate.Close()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

func TestSessionRefuses(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, do := range map[string]func(s *session) error{
		"one descriptor for pipes": func(s *session) error { return s.sandbox.Write([]byte(`{"ready":true}`), r) },
		"four descriptors":         func(s *session) error { return s.sandbox.Write([]byte(`{"ready":true}`), r, r, r, r) },
		"not ready":                func(s *session) error { return s.sandbox.Write([]byte(`{"ready":false}`), r, r, r) },
		"more than ready":          func(s *session) error { return s.sandbox.Write([]byte(`{"ready":true,"x":1}`), r, r, r) },
		"no JSON":                  func(s *session) error { return s.sandbox.Write([]byte(`ready`), r, r, r) },
		"abort of a model call": func(s *session) error {
			b, err := gatewire.EncodeDown(gatewire.Down{Abort: &gatewire.Abort{ID: 1}}, nil)
			return errors.Join(err, s.gate.Write(b))
		},
		"input with a descriptor": func(s *session) error {
			b, err := gatewire.EncodeDown(gatewire.Down{RunInput: &gatewire.RunInput{EOF: true}}, nil)
			return errors.Join(err, s.gate.Write(b, r))
		},
		"no message": func(s *session) error { return s.gate.Write([]byte("hello")) },
	} {
		s := serving(t, false)
		if err := do(s); err != nil {
			t.Fatal(err)
		}
		if err := s.ends(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
