//go:build linux

package statestore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
)

// stateFailed is the lifecycle state of a run that a crash ended.
const stateFailed = "failed"

// recover brings a log that a crash left open back to rest, in one transaction:
// every open intent gets the outcome "unknown", its reservation is charged in
// full, every live run ends as crashed, and one record says so. A new log gets
// its first record. Killed at any point, the next start does the same again.
// Spec: INV-01, INV-03.
func (s *Store) recover(ctx context.Context) error {
	tx, err := s.leftOpen(ctx)
	if err != nil {
		return sqlFault(err, s.cfg.Dir, "look for what a crash left open")
	}
	if len(tx.Entries)+len(tx.Budget)+len(tx.Runs) > 0 {
		counts := map[string]any{"calls": len(tx.Entries) - len(tx.Runs), "runs": len(tx.Runs), "reservations": len(tx.Budget)}
		tx.Entries = append(tx.Entries, audit.Entry{Kind: audit.KindRecovery, At: s.cfg.Now(), Body: counts})
	}
	if s.tree.size == 0 {
		tx.Entries = append(tx.Entries, audit.Entry{Kind: audit.KindGenesis, At: s.cfg.Now(),
			Body: map[string]any{"log": s.key.Name, "key": s.key.Verifier}})
	}
	if len(tx.Entries) == 0 {
		return nil
	}
	p := &prepared{runs: tx.Runs}
	for _, e := range tx.Entries {
		pe, err := s.prepareEntry(e)
		if err != nil {
			return err
		}
		p.entries = append(p.entries, pe)
	}
	for _, c := range tx.Budget {
		if err := p.change(c); err != nil {
			return err
		}
	}
	group := []*request{{tx: p}}
	w, _, err := s.transact(group)
	if err != nil {
		return sqlFault(err, s.cfg.Dir, "record what a crash left open")
	}
	s.keep(w, group)
	return nil
}

// leftOpen builds the transaction that closes open calls, reservations, runs.
func (s *Store) leftOpen(ctx context.Context) (gate.Tx, error) {
	var tx gate.Tx
	intents, err := s.openIntents(ctx)
	if err != nil {
		return tx, err
	}
	for _, in := range intents {
		s.open[in.Call] = in.Seq
		tx.Entries = append(tx.Entries, audit.Entry{Kind: audit.KindOutcome, At: s.cfg.Now(), Run: in.Run, Call: in.Call,
			Agent: in.Agent, Owner: in.Owner,
			Body: map[string]any{"status": call.Unknown, "reason": "crash between intent and outcome"}})
	}
	open, err := openReservations(ctx, s.conn)
	if err != nil {
		return tx, err
	}
	for _, r := range open {
		tx.Budget = append(tx.Budget, budget.Change{Settle: &budget.Settlement{Call: r.Call, Keys: r.Keys, Used: r.Amount}})
	}
	runs, err := listRuns(ctx, s.conn, `WHERE reason = '' ORDER BY first_seq`)
	if err != nil {
		return tx, err
	}
	for _, r := range runs {
		tx.Entries = append(tx.Entries, audit.Entry{Kind: audit.KindRunEnd, At: s.cfg.Now(), Run: r.Run, Agent: r.Agent, Owner: r.Owner,
			Body: map[string]any{"reason": endreason.Crashed}})
		tx.Runs = append(tx.Runs, gate.RunState{Run: r.Run, Agent: r.Agent, Owner: r.Owner, State: stateFailed, Reason: string(endreason.Crashed)})
	}
	return tx, nil
}

// openIntents finds the intents without outcome, in order, from the records.
func (s *Store) openIntents(ctx context.Context) ([]audit.Record, error) {
	var settled int64
	if err := s.conn.QueryRowContext(ctx, `SELECT settled FROM tree`).Scan(&settled); err != nil {
		return nil, noRows(err, "read tree")
	}
	open := make(map[string]audit.Record)
	err := chunks(ctx, s.conn, uint64(max(settled, 0)), s.tree.size, false, func(first uint64, data []byte) error {
		return items(first, data, func(it Item) error {
			switch it.Record.Kind {
			case audit.KindIntent:
				open[it.Record.Call] = it.Record
			case audit.KindOutcome:
				delete(open, it.Record.Call)
			}
			return nil
		})
	})
	out := slices.SortedFunc(maps.Values(open), func(a, b audit.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, err
}

func openReservations(ctx context.Context, q querier) ([]budget.Reservation, error) {
	rows, err := q.QueryContext(ctx, `SELECT call, keys, amount FROM reservations ORDER BY call`)
	if err != nil {
		return nil, fmt.Errorf("read reservations: %w", err)
	}
	defer rows.Close()
	var open []budget.Reservation
	for rows.Next() {
		var r budget.Reservation
		var keys, amount string
		if err := rows.Scan(&r.Call, &keys, &amount); err != nil {
			return nil, fmt.Errorf("read reservations: %w", err)
		}
		if json.Unmarshal([]byte(keys), &r.Keys) != nil || json.Unmarshal([]byte(amount), &r.Amount) != nil {
			return nil, fault.New(fault.Corrupt, nextCorrupt, "read reservation of call %.40q", r.Call)
		}
		open = append(open, r)
	}
	return open, rows.Err()
}
