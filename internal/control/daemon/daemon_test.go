//go:build linux

package daemon

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/api/apierr"
	"agentos/internal/api/runspec"
	"agentos/internal/control/config"
	"agentos/internal/control/identity"
	"agentos/internal/control/statestore"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
	"agentos/internal/trusted/principal"
)

// bench is a daemon over a state directory, and one client of it.
type bench struct {
	t      *testing.T
	state  string
	daemon *Daemon
	http   *http.Client
	url    string
}

func newBench(t *testing.T, sets ...string) *bench {
	t.Helper()
	b := &bench{t: t, state: filepath.Join(t.TempDir(), "state")}
	b.daemon = New(Config{StateDir: b.state, Binaries: t.TempDir()})
	t.Cleanup(func() {
		if err := b.daemon.Close(); err != nil {
			t.Error(err)
		}
	})
	b.connect(sets...)
	return b
}

// connect makes a session with settings of its own.
func (b *bench) connect(sets ...string) *Session {
	b.t.Helper()
	src := config.Sources{Home: b.t.TempDir(), Dir: "/"}
	for _, s := range append([]string{"model.backend=rules", "state_dir=" + b.state}, sets...) {
		set, err := setting.ParseSet(s)
		if err != nil {
			b.t.Fatal(err)
		}
		src.Sets = append(src.Sets, set)
	}
	loaded, err := config.Load(src)
	if err != nil {
		b.t.Fatal(err)
	}
	s := b.daemon.Session(loaded, Client{})
	srv := httptest.NewServer(s.Handler())
	b.t.Cleanup(srv.Close)
	b.http, b.url = srv.Client(), srv.URL
	return s
}

func (b *bench) once(goal string) error {
	b.t.Helper()
	s, err := agentosv1connect.NewAgentServiceClient(b.http, b.url).Once(b.t.Context(), connect.NewRequest(&pb.OnceRequest{Goal: goal}))
	if err != nil {
		return apierr.FromConnect(err)
	}
	defer s.Close()
	for s.Receive() {
		b.t.Errorf("event %v", s.Msg())
	}
	return apierr.FromConnect(s.Err())
}

// questions are the requests that only read, with what they say when there is
// no state yet.
func (b *bench) questions() map[string]func() error {
	ctx := b.t.Context()
	agents := agentosv1connect.NewAgentServiceClient(b.http, b.url)
	log := agentosv1connect.NewAuditServiceClient(b.http, b.url)
	policies := agentosv1connect.NewPolicyServiceClient(b.http, b.url)
	host := agentosv1connect.NewHostServiceClient(b.http, b.url)
	runs, work := agentosv1connect.NewRunServiceClient(b.http, b.url), b.t.TempDir()
	return map[string]func() error{
		"agents": func() error { _, err := agents.List(ctx, connect.NewRequest(&pb.ListAgentsRequest{})); return err },
		"log": func() error {
			s, err := log.Log(ctx, connect.NewRequest(&pb.LogRequest{}))
			if err != nil {
				return err
			}
			for s.Receive() {
			}
			return errors.Join(s.Err(), s.Close())
		},
		"show":       func() error { _, err := log.Show(ctx, connect.NewRequest(&pb.ShowRequest{Ref: "0"})); return err },
		"verify":     func() error { _, err := log.Verify(ctx, connect.NewRequest(&pb.VerifyRequest{})); return err },
		"checkpoint": func() error { _, err := log.Checkpoint(ctx, connect.NewRequest(&pb.CheckpointRequest{})); return err },
		"lineage":    func() error { _, err := log.Lineage(ctx, connect.NewRequest(&pb.LineageRequest{Ref: "x"})); return err },
		"check":      func() error { _, err := policies.Check(ctx, connect.NewRequest(&pb.PolicyCheckRequest{})); return err },
		"test":       func() error { _, err := policies.Test(ctx, connect.NewRequest(&pb.PolicyTestRequest{})); return err },
		"explain": func() error {
			_, err := policies.Explain(ctx, connect.NewRequest(&pb.PolicyExplainRequest{Action: "tool.call", Resource: "system_inspect"}))
			return err
		},
		"plan": func() error {
			_, err := runs.Plan(ctx, connect.NewRequest(&pb.RunSpec{Profile: "claude-code", Command: []string{"true"}, Dir: work}))
			return err
		},
		"doctor": func() error { _, err := host.Doctor(ctx, connect.NewRequest(&pb.DoctorRequest{})); return err },
		"config": func() error { _, err := host.Config(ctx, connect.NewRequest(&pb.ConfigRequest{})); return err },
	}
}

// files are the contents of the state directory.
func (b *bench) files() map[string]string {
	b.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(filepath.Dir(b.state), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		// SQLite keeps the places of readers in its shared memory.
		if !strings.HasSuffix(path, "-shm") {
			out[path] = string(data)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestReadingMakesNothing: without a state directory, questions are answered by
// that and leave none.
func TestReadingMakesNothing(t *testing.T) {
	b := newBench(t)
	noState := map[string]bool{"log": true, "show": true, "verify": true, "checkpoint": true, "lineage": true}
	for name, ask := range b.questions() {
		err := apierr.FromConnect(ask())
		if noState[name] && fault.KindOf(err) != fault.NotFound || !noState[name] && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(b.state); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s made a state directory: %v", name, err)
		}
	}
}

// TestReadingBesideAWriter: questions need no lock and change nothing.
func TestReadingBesideAWriter(t *testing.T) {
	b := newBench(t)
	b.writer(nil)
	before := b.files()
	for name, ask := range b.questions() {
		if err := apierr.FromConnect(ask()); err != nil && name != "lineage" { // of "x"
			t.Errorf("%s: %v", name, err)
		}
	}
	if d := cmp.Diff(before, b.files()); d != "" {
		t.Errorf("reading changed the state: %.500s", d)
	}
}

// writer is another instance at work on the state; use gets its store.
func (b *bench) writer(use func(*statestore.Store)) (stop func()) {
	b.t.Helper()
	s, err := statestore.Open(b.t.Context(), statestore.Config{Dir: b.state, Now: time.Now})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(stop)
	if use != nil {
		use(s)
	}
	return stop
}

// TestOneWriter: the state has one writer; the second is told so, and is served
// when the first is gone.
func TestOneWriter(t *testing.T) {
	b := newBench(t)
	stop := b.writer(nil)
	if err := b.once("look"); fault.KindOf(err) != fault.Conflict || fault.NextOf(err) == "" {
		t.Errorf("beside a writer: %v", err)
	}
	stop()
	if err := b.once("look"); fault.KindOf(err) != fault.NotFound { // of the programs
		t.Errorf("after it: %v", err)
	}
	// The daemon is the writer now, for all its sessions, until it is closed.
	b.connect()
	if err := b.once("look"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("second session: %v", err)
	}
	if s, err := statestore.Open(t.Context(), statestore.Config{Dir: b.state, Now: time.Now}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("%v %v", s, err)
	}
	if err := b.daemon.Close(); err != nil {
		t.Fatal(err)
	}
	b.writer(nil)
}

// TestNoPrograms: without the sister programs nothing is recorded as a run.
func TestNoPrograms(t *testing.T) {
	b := newBench(t)
	err := b.once("look")
	if fault.KindOf(err) != fault.NotFound || !strings.Contains(err.Error(), b.daemon.cfg.Binaries) || fault.NextOf(err) == "" {
		t.Errorf("%v", err)
	}
	// A program that others may change is none.
	for _, n := range []string{"agentos-loop", "agentos-shim", "agentos-tool"} {
		path := filepath.Join(b.daemon.cfg.Binaries, n)
		if err := errors.Join(os.WriteFile(path, []byte("#!/bin/true\n"), 0o755), os.Chmod(path, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.once("look"); fault.KindOf(err) != fault.Denied {
		t.Errorf("programs that anybody may write: %v", err)
	}
	s, err := agentosv1connect.NewAuditServiceClient(b.http, b.url).Log(t.Context(), connect.NewRequest(&pb.LogRequest{Kinds: []string{"run.start"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Receive() || s.Err() != nil {
		t.Errorf("a run was recorded: %v %v", s.Msg(), s.Err())
	}
}

// TestGoals: a goal is checked before anything is opened.
func TestGoals(t *testing.T) {
	b := newBench(t)
	for _, goal := range []string{"", strings.Repeat("x", runspec.MaxGoal+1)} {
		if err := b.once(goal); fault.KindOf(err) != fault.Usage {
			t.Errorf("goal of %d bytes: %v", len(goal), err)
		}
	}
	if _, err := os.Lstat(b.state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("state was made: %v", err)
	}
}

// TestBackendOfTheStart: a model that can't be had ends the request, before a
// run exists.
func TestBackendOfTheStart(t *testing.T) {
	b := newBench(t, "model.backend=socket", "model.socket="+filepath.Join(t.TempDir(), "none.sock"))
	if err := b.once("look"); err == nil || fault.NextOf(err) == "" || strings.Contains(err.Error(), "agentos-") {
		t.Errorf("%v", err)
	}
}

// TestOwner: the owner is the process's own user; only root may name another
// one, and everybody sees their own agents.
func TestOwner(t *testing.T) {
	b := newBench(t)
	if s := b.connect(); s.owner != uint32(os.Getuid()) {
		t.Errorf("owner %d", s.owner)
	}
	stop := b.writer(func(st *statestore.Store) {
		for i, owner := range []uint32{uint32(os.Getuid()), 4242} {
			_, err := identity.Store{S: st}.Bind(t.Context(), principal.Binding{
				Agent: []string{"mine", "theirs"}[i], Role: principal.Agent, Owner: owner, UID: 1_900_000_000 + uint32(i), GID: 1_900_000_000 + uint32(i), At: time.Now(),
			}, principal.Reserved)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	stop()
	list := func() (out []string) {
		t.Helper()
		r, err := agentosv1connect.NewAgentServiceClient(b.http, b.url).List(t.Context(), connect.NewRequest(&pb.ListAgentsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range r.Msg.GetAgents() {
			out = append(out, a.GetId())
		}
		return out
	}
	if d := cmp.Diff([]string{"mine"}, list()); d != "" {
		t.Error(d)
	}
	s := b.connect("agent.owner_uid=4242")
	if d := cmp.Diff([]string{"theirs"}, list()); d != "" || s.owner != 4242 {
		t.Errorf("owner %d: %s", s.owner, d)
	}
	b.daemon.root = false
	if err := b.once("look"); fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), "only root") {
		t.Errorf("another owner's run without root: %v", err)
	}
	b.daemon.root = true
	if err := b.once("look"); fault.KindOf(err) == fault.Denied {
		t.Errorf("as root: %v", err)
	}
}
