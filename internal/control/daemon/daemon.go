//go:build linux

// Package daemon is agentosd's composition root: it puts store, gate, policies,
// backend and supervisor together for each request and serves the control API
// over the connection of one client. It wires and decides nothing.
//
// State owned: nothing outlives a request in this version; the state directory
// is opened, locked and closed by the requests that write. Imports: control/*,
// execution/tool/catalog, host/*, trusted. Imported by: cmd/agentosd.
// Invariants: identity comes from the process's own credentials, never from a
// field; requests that only read take no lock and write nothing.
// Tests: daemon_test.go; integration/once on the built binaries.
package daemon

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/oklog/ulid/v2"

	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/control/anchor"
	"agentos/internal/control/auditapi"
	"agentos/internal/control/authority"
	"agentos/internal/control/backend"
	"agentos/internal/control/config"
	"agentos/internal/control/policyapi"
	"agentos/internal/control/statestore"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/policy"
)

// maxRequest bounds one API message in bytes; policy files travel in them.
const maxRequest = 16 << 20

// Daemon serves one caller. Safe for concurrent use.
type Daemon struct {
	loaded *config.Result
	dir    string // of the sister binaries
	owner  uint32
	root   bool
	now    func() time.Time
}

// Config of a daemon.
type Config struct {
	Settings *config.Result
	// Binaries is the directory of the sister programs.
	Binaries string
}

// New starts nothing and opens nothing.
func New(cfg Config) *Daemon {
	d := &Daemon{loaded: cfg.Settings, dir: cfg.Binaries, owner: uint32(os.Getuid()), root: os.Geteuid() == 0, now: time.Now}
	if o := cfg.Settings.Config.Agent.OwnerUID; o != nil {
		d.owner = *o
	}
	return d
}

// Handler is the whole control API.
func (d *Daemon) Handler() http.Handler {
	mux := http.NewServeMux()
	opts := []connect.HandlerOption{connect.WithReadMaxBytes(maxRequest)}
	mux.Handle(agentosv1connect.NewAgentServiceHandler(agents{d}, opts...))
	mux.Handle(agentosv1connect.NewAuditServiceHandler(auditapi.New(auditapi.Deps{Reader: d.withReader, Anchors: d.anchors}), opts...))
	mux.Handle(agentosv1connect.NewPolicyServiceHandler(d.policyService(), opts...))
	mux.Handle(agentosv1connect.NewHostServiceHandler(d.hostService(), opts...))
	return mux
}

// policyService explains with the gate that a run would get.
func (d *Daemon) policyService() *policyapi.Service {
	c := d.settings()
	return policyapi.New(policyapi.Deps{
		Active: func() ([]policy.Source, error) { return authority.Sources(c.Policy.Dir) },
		Reader: d.withReader, Agent: c.Agent.ID, Owner: d.owner, Now: d.now,
		Authority: func(ctx context.Context, r *statestore.Reader) (*authority.Authority, error) {
			var st budget.State
			if r != nil {
				var err error
				if st, err = r.Budget(ctx); err != nil {
					return nil, err
				}
			}
			b, err := backend.Choose(c, d.owner)
			if err != nil {
				return nil, err
			}
			return d.authority(nil, st, b)
		},
	})
}

func (d *Daemon) settings() config.Config { return d.loaded.Config }

// newID makes identifiers that sort by time: "run-01j…".
func newID(kind string) string {
	return kind + "-" + strings.ToLower(ulid.MustNew(ulid.Now(), rand.Reader).String())
}

// withStore opens the state for writing, runs its writer for the time of use
// and closes it.
func (d *Daemon) withStore(ctx context.Context, use func(*statestore.Store) error) (err error) {
	s, err := statestore.Open(ctx, statestore.Config{Dir: d.settings().StateDir, Now: d.now})
	if err != nil {
		return err
	}
	// The writer outlives a cancelled request: what happened is recorded.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Run(run) }()
	defer func() {
		stop()
		werr := <-done
		cerr := s.Close()
		for _, e := range []error{werr, cerr} {
			if err == nil {
				err = e
			}
		}
	}()
	return use(s)
}

// withReader opens the state without a lock.
func (d *Daemon) withReader(ctx context.Context, use func(*statestore.Reader) error) error {
	r, err := statestore.OpenReadOnly(ctx, d.settings().StateDir)
	if err != nil {
		return err
	}
	defer r.Close()
	return use(r)
}

// authority builds the gate.
func (d *Daemon) authority(j gate.Journal, st budget.State, b backend.Choice) (*authority.Authority, error) {
	tools, err := catalog.ReadOnly()
	if err != nil {
		return nil, err
	}
	return authority.New(authority.Config{Settings: d.settings(), Owner: d.owner, Tools: tools, Model: b.Model}, j, st, d.now)
}

// anchors are the places outside the log that checkpoints are sent to.
func (d *Daemon) anchors() ([]anchor.Anchor, error) {
	var out []anchor.Anchor
	for _, a := range d.settings().Audit.Anchors {
		switch a.Kind {
		case "journald":
			out = append(out, anchor.NewJournald())
		case "file":
			f, err := anchor.NewFile(a.Path, d.settings().StateDir)
			if err != nil {
				return nil, err
			}
			out = append(out, f)
		}
	}
	return out, nil
}

func (d *Daemon) binary(name string) string { return filepath.Join(d.dir, name) }
