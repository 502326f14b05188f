//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// indexRows is how many calls one statement adds to their index.
const indexRows = 16

// statements are the writer's, prepared once.
type statements struct {
	begin, commit, edge, bundle, cut, peaks                                               *sql.Stmt
	call, intent, intents, outcome, run, extend, reserve, settle, balance, payload, known *sql.Stmt
	all                                                                                   []*sql.Stmt
}

func (st *statements) prepare(ctx context.Context, c *sql.Conn, dir string) error {
	for _, p := range []struct {
		into **sql.Stmt
		text string
	}{
		{&st.begin, `BEGIN IMMEDIATE`},
		{&st.commit, `COMMIT`},
		{&st.edge, `INSERT INTO edge (k, leaves, data) VALUES (?, ?, ?), (?, NULL, ?)`},
		{&st.bundle, `INSERT INTO bundles (n, note, leaves, data) VALUES (?, ?, ?, ?)`},
		{&st.cut, `DELETE FROM edge WHERE k < 2 * ?`},
		{&st.peaks, `UPDATE tree SET bundles = ?, peaks = ?, settled = ?`},
		{&st.intent, `INSERT OR IGNORE INTO calls (call, intent, outcome) VALUES (?, ?, ?)`},
		{&st.intents, `INSERT OR IGNORE INTO calls (call, intent, outcome) VALUES (?, ?, ?)` + strings.Repeat(`, (?, ?, ?)`, indexRows-1)},
		{&st.outcome, `UPDATE calls SET outcome = ? WHERE call = ? AND outcome IS NULL`},
		{&st.call, `SELECT count(*) FROM calls WHERE call = ?`},
		{&st.run, `INSERT INTO runs (run, agent, owner, state, reason, first_seq, last_seq) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (run) DO UPDATE SET state = excluded.state, reason = excluded.reason, last_seq = excluded.last_seq
			WHERE runs.reason = ''`},
		{&st.extend, `UPDATE runs SET last_seq = ? WHERE run = ? AND last_seq IS NOT NULL`},
		{&st.reserve, `INSERT OR IGNORE INTO reservations (call, keys, amount) VALUES (?, ?, ?)`},
		{&st.settle, `DELETE FROM reservations WHERE call = ?`},
		{&st.balance, `INSERT INTO balances (key, resource, used) VALUES (?, ?, ?)
			ON CONFLICT (key, resource) DO UPDATE SET used = used + excluded.used`},
		{&st.payload, `INSERT OR IGNORE INTO payloads (dedup, commitment, salt, media, data) VALUES (?, ?, ?, ?, ?)`},
		{&st.known, `SELECT commitment FROM payloads WHERE dedup = ?`},
	} {
		s, err := c.PrepareContext(ctx, p.text)
		if err != nil {
			return sqlFault(err, dir, "prepare statement")
		}
		*p.into = s
		st.all = append(st.all, s)
	}
	return nil
}

func (st *statements) close() error {
	var errs []error
	for _, s := range st.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
