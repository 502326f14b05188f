//go:build linux

// Package daemon is agentosd's composition root: it puts store, gate, policies,
// backends, launcher and supervisors together and serves the control API. It
// wires and decides nothing.
//
// State owned: the open store with its ledger, the launcher, the runs that live.
// Imports: control/*, execution/*, host/*, trusted. Imported by: cmd/agentosd.
// Locks: Daemon.mu guards what is opened lazily; it is held while opening.
// Invariants: identity comes from the process's own credentials, never from a
// field; requests that only read take no lock and write nothing; all gates of a
// state share one ledger.
// Tests: daemon_test.go; integration/once and integration/sandbox on the built
// binaries.
package daemon

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/oklog/ulid/v2"

	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/control/anchor"
	"agentos/internal/control/auditapi"
	"agentos/internal/control/authority"
	"agentos/internal/control/backend"
	"agentos/internal/control/config"
	"agentos/internal/control/launcher"
	"agentos/internal/control/policyapi"
	"agentos/internal/control/runapi"
	"agentos/internal/control/statestore"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/policy"
)

// maxRequest bounds one API message in bytes; policy files travel in them.
const maxRequest = 16 << 20

// Config of a daemon.
type Config struct {
	StateDir string
	// Binaries is the directory of the sister programs.
	Binaries string
}

// Daemon is one process over one state directory. Safe for concurrent use.
type Daemon struct {
	cfg  Config
	root bool
	now  func() time.Time

	runs *runapi.Table

	mu       sync.Mutex
	state    *openState         // nil until something writes
	launcher *launcher.Launcher // nil until something is launched
	held     map[string]*os.File
}

// openState is what is opened by the first request that writes and closed by
// Close.
type openState struct {
	store  *statestore.Store
	ledger *budget.Ledger
	stop   context.CancelFunc
	done   chan error
}

// New starts nothing and opens nothing.
func New(cfg Config) *Daemon {
	return &Daemon{cfg: cfg, root: os.Geteuid() == 0, now: time.Now, runs: runapi.NewTable()}
}

// Close ends every run and closes the state, after everything that was recorded
// is on disk. No request may be under way.
func (d *Daemon) Close() error {
	d.runs.StopAll()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.launcher != nil {
		d.launcher.Close()
		d.launcher = nil
	}
	if d.state == nil {
		return nil
	}
	d.state.stop()
	err := <-d.state.done
	if cerr := d.state.store.Close(); err == nil {
		err = cerr
	}
	d.state = nil
	return err
}

// open opens the state for writing, once: lock, recovery, ledger, writer. The
// writer outlives every request: what happened is recorded.
func (d *Daemon) open(ctx context.Context) (*openState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != nil {
		return d.state, nil
	}
	s, err := statestore.Open(ctx, statestore.Config{Dir: d.cfg.StateDir, Now: d.now})
	if err != nil {
		return nil, err
	}
	st, err := s.Budget(ctx)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.state = &openState{store: s, ledger: budget.NewLedger(st), stop: stop, done: make(chan error, 1)}
	go func(done chan<- error) { done <- s.Run(run) }(d.state.done)
	return d.state, nil
}

// Session is one client with its settings. Safe for concurrent use.
type Session struct {
	*Daemon
	loaded *config.Result
	owner  uint32
	client Client
}

// Client is where a client lives. Empty: it has no such place.
type Client struct {
	Home      string
	ConfigDir string // XDG_CONFIG_HOME, or .config in its home
}

// Session serves a client of this process's user with its settings.
func (d *Daemon) Session(settings *config.Result, c Client) *Session {
	s := &Session{Daemon: d, loaded: settings, owner: uint32(os.Getuid()), client: c}
	if o := settings.Config.Agent.OwnerUID; o != nil {
		s.owner = *o
	}
	return s
}

// Handler is the whole control API.
func (s *Session) Handler() http.Handler { return s.handler() }

func (s *Session) handler(opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	opts = append(opts, connect.WithReadMaxBytes(maxRequest))
	mux.Handle(agentosv1connect.NewAgentServiceHandler(agents{s}, opts...))
	mux.Handle(agentosv1connect.NewAuditServiceHandler(auditapi.New(auditapi.Deps{Reader: s.withReader, Anchors: s.anchors}), opts...))
	mux.Handle(agentosv1connect.NewPolicyServiceHandler(s.policyService(), opts...))
	mux.Handle(agentosv1connect.NewHostServiceHandler(s.hostService(), opts...))
	mux.Handle(agentosv1connect.NewRunServiceHandler(s.runService(), opts...))
	return mux
}

// policyService explains with the gate that a run would get.
func (s *Session) policyService() *policyapi.Service {
	c := s.settings()
	return policyapi.New(policyapi.Deps{
		Active: func() ([]policy.Source, error) { return authority.Sources(c.Policy.Dir) },
		Reader: s.withReader, Agent: c.Agent.ID, Owner: s.owner, Now: s.now,
		Authority: func(ctx context.Context, r *statestore.Reader) (*authority.Authority, error) {
			var st budget.State
			if r != nil {
				var err error
				if st, err = r.Budget(ctx); err != nil {
					return nil, err
				}
			}
			b, err := backend.Choose(c, s.owner)
			if err != nil {
				return nil, err
			}
			return s.authority(nil, budget.NewLedger(st), b)
		},
	})
}

func (s *Session) settings() config.Config { return s.loaded.Config }

// newID makes identifiers that sort by time: "run-01j…".
func newID(kind string) string {
	return kind + "-" + strings.ToLower(ulid.MustNew(ulid.Now(), rand.Reader).String())
}

// withReader opens the state without a lock.
func (s *Session) withReader(ctx context.Context, use func(*statestore.Reader) error) error {
	r, err := statestore.OpenReadOnly(ctx, s.cfg.StateDir)
	if err != nil {
		return err
	}
	defer r.Close()
	return use(r)
}

// authority builds the gate.
func (s *Session) authority(j gate.Journal, l *budget.Ledger, b backend.Choice) (*authority.Authority, error) {
	tools, err := catalog.ReadOnly()
	if err != nil {
		return nil, err
	}
	return authority.New(authority.Config{Settings: s.settings(), Owner: s.owner, Tools: tools, Model: b.Model}, j, l, s.now)
}

// places are the configured anchors. The default, the journal, is one only where
// there is a journal; doctor says when there is none. What somebody configured
// is never left out.
func (s *Session) places() []config.Anchor {
	for _, v := range s.loaded.Values {
		if v.Key == "audit.anchors" && v.Origin == config.FromDefault {
			if _, err := os.Stat(anchor.JournalSocket); err != nil {
				return nil
			}
		}
	}
	return s.settings().Audit.Anchors
}

// anchors are the places outside the log that checkpoints are sent to.
func (s *Session) anchors() ([]anchor.Anchor, error) {
	var out []anchor.Anchor
	for _, a := range s.places() {
		switch a.Kind {
		case "journald":
			out = append(out, anchor.NewJournald(""))
		case "file":
			f, err := anchor.NewFile(a.Path, s.cfg.StateDir)
			if err != nil {
				return nil, err
			}
			out = append(out, f)
		}
	}
	return out, nil
}

func (d *Daemon) binary(name string) string { return filepath.Join(d.cfg.Binaries, name) }
