//go:build linux

package daemon

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"agentos/internal/api/apierr"
	"agentos/internal/api/wire"
	"agentos/internal/control/config"
	"agentos/internal/control/handover"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
)

// idleTime is how long a shared agentosd waits for a client when nothing runs.
const idleTime = 30 * time.Second

// stopGrace bounds how long ending runs may take to be recorded.
const stopGrace = 10 * time.Second

// Serve is a shared agentosd: it opens the state, takes clients over the control
// socket and ends when there has been neither a client nor a run for a while, or
// with ctx, which ends every run. ready is called when it listens.
func (d *Daemon) Serve(ctx context.Context, ready func()) error {
	if _, err := d.open(ctx); err != nil {
		return err
	}
	release, err := d.hold()
	defer release()
	if err != nil {
		return err
	}
	l, err := handover.Listen(d.cfg.StateDir)
	if err != nil {
		return err
	}
	ready()
	clients := newCounter()
	served := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		served <- l.Serve(serving, func(ctx context.Context, c *net.UnixConn, o handover.Offer) {
			defer clients.add(1)()
			d.client(ctx, c, o)
		})
	}()
	select {
	case err = <-served:
	case <-ctx.Done():
	case <-d.idle(serving, clients):
	}
	// Stop listening first: who comes now finds nobody and starts another one.
	_ = l.Close()
	d.runs.StopAll()
	stop()
	select {
	case <-served:
	case <-time.After(stopGrace):
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "serve clients")
	}
	return nil
}

// client serves one handed-over connection with the settings that came with it.
func (d *Daemon) client(ctx context.Context, c *net.UnixConn, o handover.Offer) {
	sets, rest, err := setting.Parse(o.Args)
	if err == nil && len(rest) > 0 {
		err = fault.New(fault.Usage, "", "unknown argument %.80q", rest[0])
	}
	var settings *config.Result
	if err == nil {
		settings, err = config.Load(config.Sources{Sets: sets, Env: o.Env, System: config.SystemFile, Home: o.Home, Dir: o.Dir})
	}
	if err == nil && settings.Config.StateDir != d.cfg.StateDir {
		err = fault.New(fault.Conflict, "", "this agentosd serves %q, not %q", d.cfg.StateDir, settings.Config.StateDir)
	}
	if err != nil {
		_ = wire.Serve(ctx, c, failing(err))
		return
	}
	_ = wire.Serve(ctx, c, d.Session(settings, Client{Home: o.Home, ConfigDir: o.ConfigDir()}).Handler())
}

// idle is closed when there was no client and no run for idleTime.
func (d *Daemon) idle(ctx context.Context, clients *counter) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(idleTime / 10)
		defer t.Stop()
		since := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-t.C:
				if clients.n() > 0 || d.runs.Live() > 0 {
					since = now
				}
				if now.Sub(since) >= idleTime {
					close(done)
					return
				}
			}
		}
	}()
	return done
}

// counter counts clients.
type counter struct {
	mu sync.Mutex
	c  int
}

func newCounter() *counter { return &counter{} }

func (c *counter) add(n int) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c += n
	return func() { c.mu.Lock(); defer c.mu.Unlock(); c.c -= n }
}

func (c *counter) n() int { c.mu.Lock(); defer c.mu.Unlock(); return c.c }

// failing answers every request with err.
func failing(err error) http.Handler {
	s := &Session{Daemon: New(Config{}), loaded: &config.Result{}}
	return s.handler(connect.WithInterceptors(refusal{apierr.ToConnect(err)}))
}

// refusal is an interceptor that lets nothing through.
type refusal struct{ err error }

func (r refusal) WrapUnary(connect.UnaryFunc) connect.UnaryFunc {
	return func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return nil, r.err }
}

func (r refusal) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (r refusal) WrapStreamingHandler(connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(context.Context, connect.StreamingHandlerConn) error { return r.err }
}
