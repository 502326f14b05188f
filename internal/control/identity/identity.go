//go:build linux

// Package identity keeps principal's bindings in the state store: one row for
// each role of an owner's agent, named "AGENT" or "AGENT/ROLE".
//
// State owned: none. Imports: control/statestore, trusted/principal, lib/fault.
// Imported by: control/daemon. Agent IDs contain no "/", so names can't collide.
// Tests: identity_test.go.
package identity

import (
	"context"
	"strings"

	"agentos/internal/control/statestore"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/principal"
)

// Store implements principal.Store.
type Store struct{ S *statestore.Store }

func name(agent string, role principal.Role) string {
	if role == principal.Agent {
		return agent
	}
	return agent + "/" + string(role)
}

func binding(b statestore.Binding) principal.Binding {
	agent, role, ok := strings.Cut(b.Agent, "/")
	if !ok {
		role = string(principal.Agent)
	}
	return principal.Binding{Agent: agent, Role: principal.Role(role), Owner: b.Owner, UID: b.UID, GID: b.GID, At: b.BoundAt}
}

// Binding implements principal.Store.
func (s Store) Binding(ctx context.Context, owner uint32, agent string, role principal.Role) (principal.Binding, bool, error) {
	b, err := s.S.Principal(ctx, name(agent, role), owner)
	if fault.KindOf(err) == fault.NotFound {
		return principal.Binding{}, false, nil
	}
	return binding(b), err == nil, err
}

// Bind implements principal.Store.
func (s Store) Bind(ctx context.Context, b principal.Binding, r principal.Range) (principal.Binding, error) {
	if b.UID == 0 {
		got, err := s.S.BindNext(ctx, name(b.Agent, b.Role), b.Owner, r.First, r.Last+1, b.At)
		return binding(got), err
	}
	got, err := s.S.Bind(ctx, statestore.Binding{Agent: name(b.Agent, b.Role), Owner: b.Owner, UID: b.UID, GID: b.GID, BoundAt: b.At})
	return binding(got), err
}

// List returns every binding.
func List(ctx context.Context, r *statestore.Reader) ([]principal.Binding, error) {
	rows, err := r.Principals(ctx)
	var out []principal.Binding
	for _, b := range rows {
		out = append(out, binding(b))
	}
	return out, err
}
