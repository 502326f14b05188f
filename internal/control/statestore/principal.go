//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"agentos/internal/lib/fault"
)

// Binding ties an agent of an owner to its Linux identity, for good.
type Binding struct {
	Agent           string
	Owner, UID, GID uint32
	BoundAt         time.Time
}

const principalColumns = `SELECT agent, owner, uid, gid, bound_at FROM principals `

// Principal reads the binding of an owner's agent. Faults: NotFound.
// Spec: OSA-02.
func (r *Reader) Principal(ctx context.Context, agent string, owner uint32) (Binding, error) {
	b, ok, err := principal(ctx, r.db, agent, owner)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, "its first run binds it", "find identity of agent %.80q of user %d", agent, owner)
	}
	return b, sqlFault(err, r.dir, "read identity of agent %.80q", agent)
}

// Principals lists all bindings, by owner and agent.
func (r *Reader) Principals(ctx context.Context) ([]Binding, error) {
	bs, err := principals(ctx, r.db, `ORDER BY owner, agent`)
	return bs, sqlFault(err, r.dir, "list identities")
}

// Bind binds an agent to a given identity; once. Binding it again to the same
// one returns the first binding; to another is a Conflict, as is a UID that
// another agent has, unless it is the owner's own (rootless).
func (s *Store) Bind(ctx context.Context, b Binding) (Binding, error) {
	return s.bind(ctx, b.Agent, b.Owner, func(ctx context.Context) (Binding, error) {
		var n int
		err := s.conn.QueryRowContext(ctx, `SELECT count(*) FROM principals WHERE uid = ? AND uid <> ?`, b.UID, b.Owner).Scan(&n)
		if err != nil {
			return b, fmt.Errorf("read identities: %w", err)
		}
		if n > 0 {
			return b, fault.New(fault.Conflict, "choose a UID that no agent has", "bind agent %.80q to UID %d: taken", b.Agent, b.UID)
		}
		if b.UID != b.Owner {
			_, err = s.conn.ExecContext(ctx, `UPDATE uids SET next = max(next, ?)`, int64(b.UID)+1)
		}
		return b, err
	}, func(have Binding) error {
		if have.UID != b.UID || have.GID != b.GID {
			return fault.New(fault.Conflict, "an agent keeps its identity; use another agent name", "bind agent %.80q to UID %d: it has %d", b.Agent, b.UID, have.UID)
		}
		return nil
	})
}

// BindNext returns the agent's binding, or binds it to the next UID in [lo, hi)
// that was never given out, with a GID of the same number. The mark behind it
// never goes down, so that no UID is used twice. Faults: Limit when the range
// is used up.
func (s *Store) BindNext(ctx context.Context, agent string, owner, lo, hi uint32, at time.Time) (Binding, error) {
	return s.bind(ctx, agent, owner, func(ctx context.Context) (Binding, error) {
		var next int64
		if err := s.conn.QueryRowContext(ctx, `SELECT next FROM uids`).Scan(&next); err != nil {
			return Binding{}, fmt.Errorf("read next UID: %w", err)
		}
		next = max(next, int64(lo))
		if next >= int64(hi) {
			return Binding{}, fault.New(fault.Limit, "configure a range with more UIDs", "bind agent %.80q: all UIDs from %d to %d were given out", agent, lo, hi)
		}
		if _, err := s.conn.ExecContext(ctx, `UPDATE uids SET next = ?`, next+1); err != nil {
			return Binding{}, fmt.Errorf("write next UID: %w", err)
		}
		return Binding{Agent: agent, Owner: owner, UID: uint32(next), GID: uint32(next), BoundAt: at}, nil
	}, func(Binding) error { return nil })
}

// bind runs in one transaction of the writer: found checks an existing binding,
// fresh makes the new one.
func (s *Store) bind(ctx context.Context, agent string, owner uint32, fresh func(context.Context) (Binding, error), found func(Binding) error) (Binding, error) {
	if agent == "" || len(agent) > 128 {
		return Binding{}, fault.New(fault.Usage, "name the agent with 1 to 128 characters", "bind agent %.80q", agent)
	}
	var out Binding
	r := &request{done: make(chan struct{}), do: func(s *Store) error {
		err := s.inTx(background, func() error {
			have, ok, err := principal(background, s.conn, agent, owner)
			if err != nil {
				return err
			}
			if ok {
				out = have
				return found(have)
			}
			if out, err = fresh(background); err != nil {
				return err
			}
			out.BoundAt = out.BoundAt.UTC()
			_, err = s.conn.ExecContext(background, `INSERT INTO principals (agent, owner, uid, gid, bound_at) VALUES (?, ?, ?, ?, ?)`,
				out.Agent, out.Owner, out.UID, out.GID, out.BoundAt.Format(time.RFC3339Nano))
			return err
		})
		var f *fault.Error
		if err == nil || errors.As(err, &f) {
			return err
		}
		return s.afterFailure(err)
	}}
	if err := s.submit(ctx, r); err != nil {
		return Binding{}, err
	}
	return out, nil
}

func principal(ctx context.Context, q querier, agent string, owner uint32) (Binding, bool, error) {
	bs, err := principals(ctx, q, `WHERE agent = ? AND owner = ?`, agent, owner)
	if err != nil || len(bs) == 0 {
		return Binding{}, false, err
	}
	return bs[0], true, nil
}

func principals(ctx context.Context, q querier, where string, args ...any) ([]Binding, error) {
	rows, err := q.QueryContext(ctx, principalColumns+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read identities: %w", err)
	}
	defer rows.Close()
	var out []Binding
	for rows.Next() {
		var b Binding
		var at sql.NullString
		if err := rows.Scan(&b.Agent, &b.Owner, &b.UID, &b.GID, &at); err != nil {
			return nil, fmt.Errorf("read identities: %w", err)
		}
		if b.BoundAt, err = time.Parse(time.RFC3339Nano, at.String); err != nil {
			return nil, fault.Wrap(err, fault.Corrupt, nextCorrupt, "read identity of agent %.80q", b.Agent)
		}
		out = append(out, b)
	}
	return out, rows.Err()
}
