//go:build linux

package launcher

import (
	"context"
	"errors"
	"os"
	"testing"

	"agentos/internal/api/launchwire"
	"agentos/internal/host/fdframe"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// peer is a launcher played by the test.
type peer struct {
	t *testing.T
	*fdframe.Conn
}

func start(t *testing.T) (*Launcher, peer) {
	t.Helper()
	a, b, err := fdframe.Pair()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := fdframe.Inherited(a)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := fdframe.Inherited(b)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	close(gone)
	l := attach(ours, gone)
	t.Cleanup(func() { theirs.Close(); l.Close() })
	return l, peer{t, fdframe.New(theirs, launchwire.MaxMessage)}
}

func (p peer) next() launchwire.Request {
	p.t.Helper()
	b, files, err := p.Read()
	if err != nil {
		p.t.Error(err)
		return launchwire.Request{}
	}
	r, err := launchwire.DecodeRequest(b)
	if err != nil || (r.Start != nil) != (len(files) == 1) {
		p.t.Errorf("%v, %d descriptors", err, len(files))
	}
	for _, f := range files {
		f.Close()
	}
	return r
}

func (p peer) say(r launchwire.Reply) {
	p.t.Helper()
	b, err := launchwire.EncodeReply(r)
	if err == nil {
		err = p.Write(b)
	}
	if err != nil {
		p.t.Error(err)
	}
}

func lifeline(t *testing.T) *os.File {
	t.Helper()
	a, b, err := fdframe.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a
}

func plan(run string) sandboxplan.Plan { return sandboxplan.Plan{Run: run} }

func TestLaunchAndEnd(t *testing.T) {
	l, p := start(t)
	go func() {
		p.next()
		p.say(launchwire.Reply{Started: &launchwire.Started{Run: "r", PID: 7, Layers: []string{"x"}}})
		if r := p.next(); r.Signal == nil || r.Signal.Signal != "TERM" {
			t.Errorf("%+v", r)
		}
		p.say(launchwire.Reply{Exited: &launchwire.Exited{Run: "r", Code: 3}})
	}()
	s, err := l.Launch(t.Context(), plan("r"), lifeline(t))
	if err != nil || s.Started.PID != 7 {
		t.Fatalf("%+v %v", s, err)
	}
	if err := l.Signal("r", "TERM"); err != nil {
		t.Fatal(err)
	}
	if x := <-s.Exited(); x.Code != 3 {
		t.Errorf("%+v", x)
	}
	if _, open := <-s.Exited(); open {
		t.Error("ended twice")
	}
}

func TestRefused(t *testing.T) {
	l, p := start(t)
	go func() {
		p.next()
		p.say(launchwire.Reply{Failed: &launchwire.Failed{Run: "r", Kind: "unavailable", Message: "no user namespaces", Next: "sysctl", Step: "user namespace"}})
	}()
	_, err := l.Launch(t.Context(), plan("r"), lifeline(t))
	if fault.KindOf(err) != fault.Unavailable || fault.NextOf(err) != "sysctl" {
		t.Fatalf("%v", err)
	}
	go func() {
		p.next()
		p.say(launchwire.Reply{Started: &launchwire.Started{Run: "r"}})
	}()
	if _, err := l.Launch(t.Context(), plan("r"), lifeline(t)); err != nil {
		t.Errorf("the name stays taken: %v", err)
	}
}

// TestLauncherGone: whoever waits hears of it, and later launches are refused.
func TestLauncherGone(t *testing.T) {
	l, p := start(t)
	go func() {
		p.next()
		p.say(launchwire.Reply{Started: &launchwire.Started{Run: "a"}})
	}()
	a, err := l.Launch(t.Context(), plan("a"), lifeline(t))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		p.next()
		p.Close()
	}()
	if _, err := l.Launch(t.Context(), plan("b"), lifeline(t)); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("waiting: %v", err)
	}
	if x := <-a.Exited(); x.Code != -1 {
		t.Errorf("running: %+v", x)
	}
	if l.Alive() {
		t.Error("alive")
	}
	if _, err := l.Launch(t.Context(), plan("c"), lifeline(t)); err == nil {
		t.Error("launched by nobody")
	}
}

// TestGivingUp: a caller that gives up while the sandbox is made ends it.
func TestGivingUp(t *testing.T) {
	l, p := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		p.next()
		cancel()
		if r := p.next(); r.Stop == nil || r.Stop.Run != "r" {
			t.Errorf("%+v", r)
		}
		p.say(launchwire.Reply{Started: &launchwire.Started{Run: "r"}})
		p.say(launchwire.Reply{Exited: &launchwire.Exited{Run: "r", Code: -1, Signal: 9}})
	}()
	if _, err := l.Launch(ctx, plan("r"), lifeline(t)); !errors.Is(err, context.Canceled) && fault.KindOf(err) != fault.Cancelled {
		t.Errorf("%v", err)
	}
}

func TestOneNameOnce(t *testing.T) {
	l, p := start(t)
	go func() {
		p.next()
		p.say(launchwire.Reply{Started: &launchwire.Started{Run: "r"}})
	}()
	if _, err := l.Launch(t.Context(), plan("r"), lifeline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Launch(t.Context(), plan("r"), lifeline(t)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("%v", err)
	}
}
