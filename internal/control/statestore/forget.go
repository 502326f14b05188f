//go:build linux

package statestore

import (
	"context"
	"fmt"

	"agentos/internal/lib/fault"
)

// Forget deletes a payload with its salt, from the database and its WAL. The
// records that committed to it stay valid; nobody can tell any more what it
// was. The caller records that it was done. Faults: NotFound; Conflict when it
// is deleted but a reader, by its snapshot, keeps the WAL from being emptied.
func (s *Store) Forget(ctx context.Context, commitment string) error {
	r := &request{done: make(chan struct{}), do: func(s *Store) error {
		// Overwrite the freed bytes too; off otherwise, it costs every commit.
		if _, err := s.conn.ExecContext(background, `PRAGMA secure_delete = ON`); err != nil {
			return sqlFault(err, s.cfg.Dir, "forget payload")
		}
		err := s.inTx(background, func() error {
			res, err := s.conn.ExecContext(background, `DELETE FROM payloads WHERE commitment = ?`, commitment)
			if err != nil {
				return fmt.Errorf("delete payload: %w", err)
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				return fault.New(fault.NotFound, "its records stay valid without it", "forget payload %.80q: not kept", commitment)
			}
			return nil
		})
		if err == nil {
			err = s.emptyWAL()
		}
		if _, perr := s.conn.ExecContext(background, `PRAGMA secure_delete = OFF`); err == nil {
			err = perr
		}
		return sqlFault(err, s.cfg.Dir, "forget payload")
	}}
	return s.submit(ctx, r)
}

// emptyWAL copies the WAL into the database and truncates it.
func (s *Store) emptyWAL() error {
	var busy, frames, copied int
	err := s.conn.QueryRowContext(background, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &copied)
	if err == nil && busy != 0 {
		return fault.New(fault.Conflict, "end commands that read the log; the next start empties the WAL",
			"empty the WAL in %q: a reader is at work", s.cfg.Dir)
	}
	return err
}
