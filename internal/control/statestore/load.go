//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
)

// load restores the log's end and holds it against the newest checkpoint: the
// quick check that every start makes.
func (s *Store) load(ctx context.Context) error {
	t, err := s.readTree(ctx)
	if err != nil {
		return err
	}
	s.tree = t
	for _, p := range t.calls {
		if p.kind != audit.KindOutcome {
			s.begun[p.call] = struct{}{}
		}
	}
	err = s.conn.QueryRowContext(ctx, `SELECT coalesce(max(call), '') FROM calls`).Scan(&s.indexed)
	return sqlFault(err, s.cfg.Dir, "read the index of calls")
}

// reread makes sure, after a failed transaction, that the disk holds exactly
// the tree in memory and that the connection is out of the transaction.
func (s *Store) reread() error {
	t, err := s.readTree(background)
	if err != nil {
		return err
	}
	if t.size != s.tree.size || t.root() != s.tree.root() {
		return fault.New(fault.Internal, "", "the log on disk has %d records, not %d", t.size, s.tree.size)
	}
	return nil
}

func (s *Store) readTree(ctx context.Context) (t tree, err error) {
	err = s.inTx(ctx, func() error {
		t, err = readTree(ctx, s.conn, s.key.Verifier)
		return err
	})
	return t, sqlFault(err, s.cfg.Dir, "read the end of the log")
}

type querier interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, nextCorrupt, "check the end of the log: "+format, args...)
}

func readTree(ctx context.Context, q querier, verifier string) (tree, error) {
	var t tree
	var bundles, have int64
	var peaks []byte
	if err := q.QueryRowContext(ctx, `SELECT bundles, peaks FROM tree`).Scan(&bundles, &peaks); err != nil {
		return t, noRows(err, "read tree")
	}
	if err := q.QueryRowContext(ctx, `SELECT coalesce(max(n) + 1, 0) FROM bundles`).Scan(&have); err != nil {
		return t, fmt.Errorf("count bundles: %w", err)
	}
	hs, ok := splitHashes(peaks)
	if !ok || bundles < 0 || have != bundles {
		return t, corrupt("%d bundles, the tree counts %d", have, bundles)
	}
	if t.bundles, ok = audit.NewFrontier(uint64(bundles), hs); !ok {
		return t, corrupt("%d subtree hashes for %d bundles", len(hs), bundles)
	}
	t.size = uint64(bundles) * audit.BundleSize
	if err := t.readTail(ctx, q); err != nil {
		return t, err
	}
	note, size, err := newestNote(ctx, q)
	if err != nil {
		return t, err
	}
	if size != t.size {
		return t, corrupt("%d records, the newest checkpoint is of %d", t.size, size)
	}
	if size == 0 {
		return t, nil
	}
	c, err := audit.OpenCheckpoint(note, verifier)
	if err != nil {
		return t, corrupt("newest checkpoint: %v", err)
	}
	if c.Size != t.size || c.Root != t.root() {
		return t, corrupt("the last records are not those that the newest checkpoint signed")
	}
	return t, nil
}

func (t *tree) readTail(ctx context.Context, q querier) error {
	rows, err := q.QueryContext(ctx, `SELECT k / 2, data FROM edge WHERE k % 2 = 0 ORDER BY k`)
	if err != nil {
		return fmt.Errorf("read tail: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var first int64
		var data []byte
		if err := rows.Scan(&first, &data); err != nil {
			return fmt.Errorf("read tail: %w", err)
		}
		if uint64(first) != t.size {
			return corrupt("record %d is missing", t.size)
		}
		t.data = append(t.data, data...)
		err := audit.Frames(data, func(_ int, raw []byte, leaf tlog.Hash) bool {
			// What doesn't decode, Verify names; here the signed hash counts.
			if r, err := audit.Decode(raw); err == nil && r.Kind.OfCall() {
				t.calls = append(t.calls, place{r.Call, r.Kind, t.size})
			}
			t.leaves = append(t.leaves, leaf[:]...)
			t.tail.Push(leaf)
			t.size++
			return t.tail.Len() < audit.BundleSize
		})
		if err != nil || t.tail.Len() >= audit.BundleSize {
			return corrupt("record %d: broken tail", t.size)
		}
	}
	return rows.Err()
}

// newestNote is the newest stored checkpoint; size 0 in an empty log.
func newestNote(ctx context.Context, q querier) (note []byte, size uint64, err error) {
	var n int64
	err = q.QueryRowContext(ctx, `SELECT (k + 1) / 2, data FROM edge WHERE k % 2 = 1 ORDER BY k DESC LIMIT 1`).Scan(&n, &note)
	if err == nil {
		return note, uint64(n), nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return nil, 0, fmt.Errorf("read checkpoint: %w", err)
	}
	err = q.QueryRowContext(ctx, `SELECT n, note FROM bundles ORDER BY n DESC LIMIT 1`).Scan(&n, &note)
	switch {
	case err == nil:
		return note, (uint64(n) + 1) * audit.BundleSize, nil
	case errors.Is(err, sql.ErrNoRows):
		return nil, 0, nil
	}
	return nil, 0, fmt.Errorf("read checkpoint: %w", err)
}

func noRows(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return corrupt("%s: the row is missing", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
