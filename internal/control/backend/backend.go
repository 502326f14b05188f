//go:build linux

// Package backend chooses who answers a run's model calls and opens the
// connections that an admitted call may use.
//
// State owned: none. Imports: control/{config,registry}, host/peersock, lib/
// fault. Imported by: control/daemon. Invariants: `auto` says what it took and
// why; a configured backend that can't be had is an error, never another one
// (no silent fall-back); a socket is verified at every connection (OSA-13).
// Tests: backend_linux_test.go.
package backend

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"agentos/internal/control/config"
	"agentos/internal/control/registry"
	"agentos/internal/host/peersock"
	"agentos/internal/lib/fault"
)

// Choice is a backend with what a run needs of it.
type Choice struct {
	Name string
	Why  string
	// Connect opens a connection for one call; nil for backends without.
	Connect func(ctx context.Context) (*os.File, error)
	// Script opens the replay script; nil for other backends.
	Script func() (*os.File, error)
	Model  registry.Model
}

// Choose picks the backend of a configuration.
func Choose(c config.Config, owner uint32) (Choice, error) {
	name, why := c.Model.Backend, "configured by model.backend"
	if name == config.BackendAuto {
		name, why = config.BackendRules, "auto: no model socket is configured (model.socket), so the built-in rules answer without a model"
		if c.Model.Socket != "" {
			name, why = config.BackendSocket, fmt.Sprintf("auto: model.socket is configured (%s)", c.Model.Socket)
		}
	}
	ch := Choice{Name: string(name), Why: why, Model: registry.Model{
		Backend: string(name), Local: true, MaxOutput: c.Agent.Limits.OutputTokens, Timeout: c.Model.Timeout,
	}}
	switch name {
	case config.BackendRules:
	case config.BackendReplay:
		ch.Model.Metered = true
		// Looked at before the run, like a socket.
		script, err := openScript(c.Model.Replay)
		if err != nil {
			return Choice{}, err
		}
		_ = script.Close()
		ch.Script = func() (*os.File, error) { return openScript(c.Model.Replay) }
	case config.BackendSocket:
		ch.Model.Metered = true
		want, err := Policy(c, owner)
		if err != nil {
			return Choice{}, err
		}
		// Looked at once before the run, so that a wrong socket is an error of the
		// start; and again for every connection.
		if _, err := peersock.Verify(c.Model.Socket, want); err != nil {
			return Choice{}, err
		}
		ch.Connect = func(ctx context.Context) (*os.File, error) { return connect(ctx, c.Model.Socket, want) }
	default:
		return Choice{}, fault.New(fault.Usage, "choose auto, socket, replay or rules (model.backend, AGENTOS_MODEL_BACKEND)",
			"use model backend %q", name)
	}
	return ch, nil
}

// Policy is what a model socket must be: the owner's or root's, and of the
// configured group if there is one.
func Policy(c config.Config, owner uint32) (peersock.Policy, error) {
	p := peersock.Policy{Owner: owner}
	if c.Model.SocketGroup == "" {
		return p, nil
	}
	gid, err := strconv.ParseUint(c.Model.SocketGroup, 10, 32)
	if err != nil {
		g, lerr := user.LookupGroup(c.Model.SocketGroup)
		if lerr != nil {
			return p, fault.Wrap(lerr, fault.Usage, "correct model.socket_group (AGENTOS_MODEL_SOCKET_GROUP)", "find group %q", c.Model.SocketGroup)
		}
		if gid, err = strconv.ParseUint(g.Gid, 10, 32); err != nil {
			return p, fault.Wrap(err, fault.Internal, "", "read the ID of group %q", c.Model.SocketGroup)
		}
	}
	id := uint32(gid)
	p.Group = &id
	return p, nil
}

func connect(ctx context.Context, path string, want peersock.Policy) (*os.File, error) {
	v, err := peersock.Verify(path, want)
	if err != nil {
		return nil, err
	}
	c, err := v.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	filer, ok := c.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fault.New(fault.Internal, "", "pass on the connection to %q: it has no descriptor", path)
	}
	f, err := filer.File()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "pass on the connection to %q", path)
	}
	return f, nil
}

func openScript(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO would wait
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "correct model.replay (AGENTOS_MODEL_REPLAY)", "open replay script")
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		_ = f.Close()
		return nil, fault.New(fault.Usage, "name a regular file in model.replay", "open replay script %q: not a regular file", path)
	}
	return f, nil
}
