//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
)

// maxCandidates bounds what an ambiguous prefix lists.
const maxCandidates = 8

// Call reads the records of one call by its full ID: intent and, once there is
// one, outcome; or its denial. Faults: NotFound, Corrupt.
func (r *Reader) Call(ctx context.Context, id string) ([]Item, error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, sqlFault(err, r.dir, "find call %.200q", id)
	}
	defer tx.Rollback() // nothing was written
	out, err := callItems(ctx, tx, id)
	if err == nil && len(out) == 0 {
		err = fault.New(fault.NotFound, "list calls with `agentos audit log`", "find call %.200q", id)
	}
	return out, sqlFault(err, r.dir, "read call %.200q", id)
}

func callItems(ctx context.Context, q querier, id string) ([]Item, error) {
	var intent, outcome sql.NullInt64
	err := q.QueryRowContext(ctx, `SELECT intent, outcome FROM calls WHERE call = ?`, id).Scan(&intent, &outcome)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	var out []Item
	for _, seq := range []sql.NullInt64{intent, outcome} {
		if !seq.Valid || len(out) == 1 && outcome == intent {
			continue
		}
		it, err := recordAt(ctx, q, uint64(seq.Int64))
		if err != nil {
			return nil, err
		}
		if it.Record.Call != id {
			return nil, fault.New(fault.Corrupt, nextCorrupt, "read call %.200q: record %d is of another call", id, seq.Int64)
		}
		out = append(out, it)
	}
	if outcome.Valid {
		return out, nil
	}
	err = unindexed(ctx, q, func(it Item) error {
		if it.Record.Call == id {
			out = append(out, it)
		}
		return nil
	})
	return out, err
}

// ResolveCall turns a call's ID or a unique prefix of it into the ID. Faults:
// NotFound; Usage when several match, naming them.
func (r *Reader) ResolveCall(ctx context.Context, prefix string) (string, error) {
	return r.resolve(ctx, "call", `SELECT call FROM calls WHERE call >= ? AND call < ? ORDER BY call LIMIT ?`, prefix)
}

// ResolveRun is ResolveCall for runs.
func (r *Reader) ResolveRun(ctx context.Context, prefix string) (string, error) {
	return r.resolve(ctx, "run", `SELECT run FROM runs WHERE run >= ? AND run < ? ORDER BY run LIMIT ?`, prefix)
}

func (r *Reader) resolve(ctx context.Context, what, query, prefix string) (string, error) {
	if prefix == "" || len(prefix) > audit.MaxID {
		return "", fault.New(fault.Usage, "give the ID or its first characters", "find %s %.200q", what, prefix)
	}
	found, err := r.candidates(ctx, what, query, prefix)
	if err != nil {
		return "", sqlFault(err, r.dir, "find %s %.200q", what, prefix)
	}
	if _, exact := slices.BinarySearch(found, prefix); exact {
		return prefix, nil
	}
	switch {
	case len(found) == 0:
		return "", fault.New(fault.NotFound, "list them with `agentos audit log`", "find %s %.200q", what, prefix)
	case len(found) == 1:
		return found[0], nil
	}
	more := ""
	if len(found) > maxCandidates {
		found, more = found[:maxCandidates], ", …"
	}
	return "", fault.New(fault.Usage, "give more characters: "+strings.Join(found, ", ")+more, "find %s %.200q: several match", what, prefix)
}

// candidates lists IDs with a prefix in order: all of those that the query's
// limit leaves.
func (r *Reader) candidates(ctx context.Context, what, query, prefix string) ([]string, error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // nothing was written
	// IDs are ASCII: 0x7f sorts behind every continuation.
	rows, err := tx.QueryContext(ctx, query, prefix, prefix+"\x7f", maxCandidates+1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		found = append(found, id)
	}
	if err := rows.Err(); err != nil || what != "call" {
		return found, err
	}
	err = unindexed(ctx, tx, func(it Item) error {
		if strings.HasPrefix(it.Record.Call, prefix) {
			found = append(found, it.Record.Call)
		}
		return nil
	})
	slices.Sort(found)
	return slices.Compact(found), err
}

// Payload reads a payload by its commitment and checks that it is the one
// committed to. Faults: NotFound when it was forgotten or never kept; Corrupt.
func (r *Reader) Payload(ctx context.Context, commitment string) (audit.Payload, error) {
	var p audit.Payload
	var salt []byte
	err := r.db.QueryRowContext(ctx, `SELECT salt, media, data FROM payloads WHERE commitment = ?`, commitment).Scan(&salt, &p.Media, &p.Data)
	if errors.Is(err, sql.ErrNoRows) {
		return p, fault.New(fault.NotFound, "its records stay valid without it", "find payload %.80q: forgotten or unknown", commitment)
	}
	if err != nil {
		return p, sqlFault(err, r.dir, "read payload %.80q", commitment)
	}
	if len(salt) != audit.SaltSize || audit.Commitment([audit.SaltSize]byte(salt), p.Media, p.Data) != commitment {
		return audit.Payload{}, fault.New(fault.Corrupt, nextCorrupt, "read payload %.80q: not what was recorded", commitment)
	}
	return p, nil
}

// Checkpoint is the newest signed checkpoint and its size. NotFound in a log
// without records.
func (r *Reader) Checkpoint(ctx context.Context) (note []byte, size uint64, err error) {
	note, size, err = newestNote(ctx, r.db)
	if err == nil && size == 0 {
		err = fault.New(fault.NotFound, "run an agent once", "read checkpoint: the log is empty")
	}
	return note, size, sqlFault(err, r.dir, "read checkpoint")
}

// Budget is the durable ledger: what every key has used, and what is reserved.
func (r *Reader) Budget(ctx context.Context) (budget.State, error) {
	st, err := r.budget(ctx)
	return st, sqlFault(err, r.dir, "read budget")
}

func (r *Reader) budget(ctx context.Context) (budget.State, error) {
	var st budget.State
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return st, err
	}
	defer tx.Rollback() // nothing was written
	rows, err := tx.QueryContext(ctx, `SELECT key, resource, used FROM balances ORDER BY key, resource`)
	if err != nil {
		return st, err
	}
	defer rows.Close()
	for rows.Next() {
		var b budget.Balance
		if err := rows.Scan(&b.Key, &b.Resource, &b.Used); err != nil {
			return st, err
		}
		st.Balances = append(st.Balances, b)
	}
	if err := rows.Err(); err != nil {
		return st, err
	}
	st.Open, err = openReservations(ctx, tx)
	return st, err
}

// Run is the durable state of a run.
type Run struct {
	Run, Agent string
	Owner      uint32
	State      string
	Reason     string // empty while alive
	First      uint64 // its first record
	End        uint64 // one past its last record; 0 while alive
}

// Runs lists the newest runs first, at most limit (0: all).
func (r *Reader) Runs(ctx context.Context, limit int) ([]Run, error) {
	if limit <= 0 {
		limit = -1
	}
	runs, err := listRuns(ctx, r.db, `ORDER BY first_seq DESC LIMIT ?`, limit)
	return runs, sqlFault(err, r.dir, "list runs")
}

// RunByID reads one run by its full ID. Faults: NotFound.
func (r *Reader) RunByID(ctx context.Context, id string) (Run, error) {
	runs, err := listRuns(ctx, r.db, `WHERE run = ?`, id)
	if err == nil && len(runs) == 0 {
		return Run{}, fault.New(fault.NotFound, "list runs with `agentos audit log`", "find run %.200q", id)
	}
	if err != nil {
		return Run{}, sqlFault(err, r.dir, "find run %.200q", id)
	}
	return runs[0], nil
}

func listRuns(ctx context.Context, q querier, where string, args ...any) ([]Run, error) {
	rows, err := q.QueryContext(ctx, `SELECT run, agent, owner, state, reason, first_seq, last_seq FROM runs `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	defer rows.Close()
	var out []Run
	for rows.Next() {
		var r Run
		var first int64
		var end sql.NullInt64
		if err := rows.Scan(&r.Run, &r.Agent, &r.Owner, &r.State, &r.Reason, &first, &end); err != nil {
			return nil, fmt.Errorf("read runs: %w", err)
		}
		r.First, r.End = uint64(first), uint64(end.Int64)
		out = append(out, r)
	}
	return out, rows.Err()
}
