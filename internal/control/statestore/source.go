//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"fmt"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
)

// Verify checks the whole log on one snapshot, see audit.Verify. An empty key
// takes the one kept beside the log, which proves less: VerifierKey.
// The error is a fault; a bad record is in the report.
func (r *Reader) Verify(ctx context.Context, opts audit.Options) (audit.Report, error) {
	if opts.Key == "" {
		opts.Key = r.key
	}
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return audit.Report{}, sqlFault(err, r.dir, "verify log")
	}
	defer tx.Rollback() // nothing was written
	rep, err := audit.Verify(ctx, source{tx}, opts)
	if err != nil && (code(err) >= 0 || ctx.Err() != nil) {
		return rep, sqlFault(err, r.dir, "verify log")
	}
	if err != nil && fault.KindOf(err) == fault.Internal {
		return rep, fault.Wrap(err, fault.Usage, "give the public key as `agentos audit checkpoint` prints it, and checkpoints of this log", "verify log")
	}
	return rep, err
}

// source streams the tables of the log.
type source struct{ q querier }

// Bundles implements audit.Source: the full bundles, then the tail as one.
func (s source) Bundles(ctx context.Context, yield func(audit.Bundle) error) error {
	last, err := s.full(ctx, yield)
	if err != nil {
		return err
	}
	b := audit.Bundle{First: uint64(last) * audit.BundleSize}
	if err := s.tail(ctx, &b); err != nil {
		return err
	}
	if err := s.notes(ctx, &b); err != nil {
		return err
	}
	if len(b.Data) == 0 && len(b.Notes) == 0 {
		return nil
	}
	return yield(b)
}

func (s source) full(ctx context.Context, yield func(audit.Bundle) error) (next int64, err error) {
	rows, err := s.q.QueryContext(ctx, `SELECT n, note, leaves, data FROM bundles ORDER BY n`)
	if err != nil {
		return 0, fmt.Errorf("read bundles: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var b audit.Bundle
		var note []byte
		if err := rows.Scan(&n, &note, &b.Leaves, &b.Data); err != nil {
			return 0, fmt.Errorf("read bundle: %w", err)
		}
		b.First = uint64(n) * audit.BundleSize
		b.Notes = []audit.SizedNote{{Size: b.First + audit.BundleSize, Note: note}}
		if err := yield(b); err != nil {
			return 0, err
		}
		next = n + 1
	}
	return next, rows.Err()
}

func (s source) tail(ctx context.Context, b *audit.Bundle) error {
	rows, err := s.q.QueryContext(ctx, `SELECT k / 2, leaves, data FROM edge WHERE k % 2 = 0 ORDER BY k`)
	if err != nil {
		return fmt.Errorf("read tail: %w", err)
	}
	defer rows.Close()
	for n := 0; rows.Next(); n++ {
		var first int64
		var leaves, data []byte
		if err := rows.Scan(&first, &leaves, &data); err != nil {
			return fmt.Errorf("read tail: %w", err)
		}
		if len(b.Data)+len(data) > audit.BundleSize*(audit.MaxRecord+16) {
			return fault.New(fault.Corrupt, nextCorrupt, "read tail: more than a bundle")
		}
		b.Data, b.Leaves = append(b.Data, data...), append(b.Leaves, leaves...)
	}
	return rows.Err()
}

func (s source) notes(ctx context.Context, b *audit.Bundle) error {
	rows, err := s.q.QueryContext(ctx, `SELECT (k + 1) / 2, data FROM edge WHERE k % 2 = 1 ORDER BY k LIMIT 1024`)
	if err != nil {
		return fmt.Errorf("read checkpoints: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var size sql.NullInt64
		var n audit.SizedNote
		if err := rows.Scan(&size, &n.Note); err != nil {
			return fmt.Errorf("read checkpoints: %w", err)
		}
		n.Size = uint64(size.Int64)
		b.Notes = append(b.Notes, n)
	}
	return rows.Err()
}
