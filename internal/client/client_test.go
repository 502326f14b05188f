package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/api/wire"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"

	"connectrpc.com/connect"
)

// The test binary is agentosd when it is called so.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "agentosd" {
		os.Exit(daemon())
	}
	os.Exit(m.Run())
}

type host struct {
	agentosv1connect.UnimplementedHostServiceHandler
}

// Doctor says what the process sees of its start.
func (host) Doctor(context.Context, *connect.Request[agentosv1.DoctorRequest]) (*connect.Response[agentosv1.DoctorResponse], error) {
	if os.Getenv("FAKE") == "die" {
		fmt.Fprintln(os.Stderr, strings.Repeat("noise\n", 10000)+"agentosd: read state: it is gone\nand more\nnext: restore it")
		os.Exit(fault.Corrupt.ExitCode())
	}
	pgid, _ := syscall.Getpgid(0)
	return connect.NewResponse(&agentosv1.DoctorResponse{Summary: strings.Join(os.Args[1:], " "),
		Verdict: fmt.Sprint(pgid == os.Getpid(), " ", os.Getenv("CANARY_OPEN") == "" || !open(os.Getenv("CANARY_OPEN")))}), nil
}

// open reports whether a descriptor of this process is the file.
func open(path string) bool {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to == path {
			return true
		}
	}
	return false
}

func daemon() int {
	conn, err := wire.Inherited()
	if err != nil {
		fmt.Fprintf(os.Stderr, "agentosd: %v\n", err)
		return fault.KindOf(err).ExitCode()
	}
	if os.Getenv("FAKE") == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	mux := http.NewServeMux()
	mux.Handle(agentosv1connect.NewHostServiceHandler(host{}))
	err = wire.Serve(context.Background(), conn, mux)
	switch os.Getenv("FAKE") {
	case "slow", "stubborn":
		<-time.After(30 * time.Second) // bounded, should a broken client forget it
	}
	if err != nil {
		return 1
	}
	return 0
}

// spawn makes a Spawn that finds the test binary as agentosd.
func spawn(t *testing.T, fake string) *Spawn {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "agentosd")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE", fake)
	return &Spawn{Dirs: []string{dir}}
}

func doctor(s *Session) (*agentosv1.DoctorResponse, error) {
	r, err := s.Host.Doctor(context.Background(), connect.NewRequest(&agentosv1.DoctorRequest{}))
	if err != nil {
		return nil, s.Explain(err)
	}
	return r.Msg, nil
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func pidOf(s *Session) int { return s.peer.(*process).cmd.Process.Pid }

func TestSession(t *testing.T) {
	canary, err := os.Create(filepath.Join(t.TempDir(), "canary"))
	if err != nil {
		t.Fatal(err)
	}
	defer canary.Close()
	t.Setenv("CANARY_OPEN", canary.Name())
	sp := spawn(t, "")
	s, err := sp.Connect(context.Background(), []setting.Set{{Key: "a", Value: "b c", Flag: "--set"}, {Key: "state_dir", Value: "/s", Flag: "--state-dir"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := doctor(s)
		if err != nil {
			t.Fatal(err)
		}
		if m.GetSummary() != "--inherit --set a=b c --state-dir /s" || m.GetVerdict() != "true true" {
			t.Errorf("started as %q, own group and no other descriptor: %s", m.GetSummary(), m.GetVerdict())
		}
	}
	_, err = s.Audit.Show(context.Background(), connect.NewRequest(&agentosv1.ShowRequest{}))
	if err := s.Explain(err); err == nil {
		t.Error("a service that is not there answered")
	}
	pid := pidOf(s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !gone(pid) {
		t.Error("agentosd outlived its session")
	}
	if _, err := doctor(s); err == nil {
		t.Error("a closed session answered")
	}
}

// An agentosd that dies during a call: its own words and kind, bounded.
func TestDeathIsExplained(t *testing.T) {
	s, err := spawn(t, "die").Connect(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = doctor(s)
	if fault.KindOf(err) != fault.Corrupt || err.Error() != "read state: it is gone\nand more" || fault.NextOf(err) != "restore it" {
		t.Errorf("%s %.200q next %q", fault.KindOf(err), err, fault.NextOf(err))
	}
	if err := s.Close(); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("close: %v", err)
	}
}

// Whatever agentosd does, Close returns with the process gone.
func TestCloseEndsAgentosd(t *testing.T) {
	for _, fake := range []string{"slow", "stubborn"} {
		sp := spawn(t, fake)
		sp.Grace = 50 * time.Millisecond
		s, err := sp.Connect(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := doctor(s); err != nil {
			t.Fatal(err)
		}
		pid := pidOf(s)
		if err := s.Close(); fault.KindOf(err) != fault.Timeout || fault.NextOf(err) == "" {
			t.Errorf("%s: %v", fake, err)
		}
		if !gone(pid) {
			t.Errorf("%s: process is left", fake)
		}
	}
}

func TestKill(t *testing.T) {
	sp := spawn(t, "stubborn")
	s, err := sp.Connect(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doctor(s); err != nil {
		t.Fatal(err)
	}
	sp.Kill()
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("close after kill: %v", err)
	}
}

func TestMissingAgentosd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agentosd"), []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := (&Spawn{Dirs: []string{dir, "/nowhere"}}).Connect(context.Background(), nil)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "/nowhere") || fault.NextOf(err) == "" {
		t.Errorf("%v", err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "agentosd"), []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = (&Spawn{Dirs: []string{broken}}).Connect(context.Background(), nil)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "start ") {
		t.Errorf("%v", err)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		said string
		code int
		kind fault.Kind
		msg  string
		next string
	}{
		"ours":           {"x\nagentosd: no room\nnext: make room\n", 5, fault.Unavailable, "no room", "make room"},
		"last one":       {"agentosd: a\nagentosd: b", 2, fault.Usage, "b", ""},
		"unknown code":   {"agentosd: a", 99, fault.Internal, "a", ""},
		"nothing":        {"", 3, fault.Internal, "agentosd ended early (HOW)", "run agentos doctor; if it stays, report it with these lines"},
		"foreign":        {"panic: x\n\tat y", 2, fault.Internal, "agentosd ended early (HOW)\n  | panic: x\n  | \tat y", "run agentos doctor; if it stays, report it with these lines"},
		"killed":         {"agentosd: a", -1, fault.Internal, "agentosd ended early (HOW)\n  | agentosd: a", "run agentos doctor; if it stays, report it with these lines"},
		"not utf-8":      {"agentosd: \xff", 2, fault.Usage, "\ufffd", ""},
		"many lines cut": {strings.Repeat("l\n", 100), 2, fault.Internal, "agentosd ended early (HOW)" + strings.Repeat("\n  | l", tailLines), "run agentos doctor; if it stays, report it with these lines"},
	} {
		var b tail
		for i := range len(tc.said) { // in small pieces
			_, _ = b.Write([]byte(tc.said[i : i+1]))
		}
		err := b.died(tc.code, "HOW")
		if fault.KindOf(err) != tc.kind || err.Error() != tc.msg || fault.NextOf(err) != tc.next {
			t.Errorf("%s: %s %q next %q", name, fault.KindOf(err), err, fault.NextOf(err))
		}
	}
}
