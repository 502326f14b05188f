//go:build linux

package statestore

import (
	"context"
	"fmt"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
)

// The table of calls is an index over full bundles, written with each: a commit
// touches no page of it. Calls of the records behind the last bundle are known
// in memory (Store.begun) and found by reading those records.

// call refuses a second intent and an outcome without an open intent, and
// remembers where the record is.
func (w *work) call(rec *audit.Record) error {
	switch rec.Kind {
	case audit.KindIntent, audit.KindDenied:
		known, err := w.known(rec.Call)
		if err != nil {
			return err
		}
		if known {
			return fault.New(fault.Conflict, nextBug, "record %s of call %q: it has a record", rec.Kind, rec.Call)
		}
		w.begun[rec.Call] = struct{}{}
		if rec.Kind == audit.KindIntent {
			w.opened[rec.Call] = rec.Seq
		}
	case audit.KindOutcome:
		if !w.isOpen(rec.Call) {
			return fault.New(fault.Conflict, nextBug, "record outcome of call %q: no open intent", rec.Call)
		}
		delete(w.opened, rec.Call)
		w.closed[rec.Call] = struct{}{}
	default:
		return nil
	}
	w.tree.calls = append(w.tree.calls, place{rec.Call, rec.Kind, rec.Seq})
	return nil
}

// known reports whether a call has a record.
func (w *work) known(call string) (bool, error) {
	_, here := w.begun[call]
	_, before := w.s.begun[call]
	if here || before || call > w.indexed { // IDs grow with time: mostly it is
		return here || before, nil
	}
	var n int
	if err := w.s.st.call.QueryRowContext(background, call).Scan(&n); err != nil {
		return false, fmt.Errorf("find call: %w", err)
	}
	return n > 0, nil
}

func (w *work) isOpen(call string) bool {
	if _, opened := w.opened[call]; opened {
		return true
	}
	_, closed := w.closed[call]
	_, open := w.s.open[call]
	return open && !closed
}

// index writes the calls of the bundle that is being written.
func (w *work) index() error {
	st, calls := &w.s.st, w.tree.calls
	outcomes := make(map[string]uint64, len(calls))
	for _, p := range calls {
		if p.kind == audit.KindOutcome {
			outcomes[p.call] = p.seq
		}
	}
	args := make([]any, 0, 3*len(calls))
	for _, p := range calls {
		var outcome any
		switch seq, ok := outcomes[p.call]; {
		case p.kind == audit.KindOutcome:
			continue
		case p.kind == audit.KindDenied:
			outcome = int64(p.seq)
		case ok:
			outcome = int64(seq)
			delete(outcomes, p.call)
		}
		args = append(args, p.call, int64(p.seq), outcome)
		w.indexed = max(w.indexed, p.call)
	}
	for len(args) > 0 {
		insert, n := st.intent, 3
		if len(args) >= 3*indexRows { // one statement for many rows costs half
			insert, n = st.intents, 3*indexRows
		}
		if _, err := insert.ExecContext(background, args[:n]...); err != nil {
			return fmt.Errorf("index calls: %w", err)
		}
		args = args[n:]
	}
	for call, seq := range outcomes { // of intents in earlier bundles
		if _, err := st.outcome.ExecContext(background, int64(seq), call); err != nil {
			return fmt.Errorf("index call: %w", err)
		}
	}
	clear(w.begun)
	w.bundled = true
	return nil
}

// unindexed reads the records behind the last bundle that belong to calls.
func unindexed(ctx context.Context, q querier, use func(Item) error) error {
	var first int64
	if err := q.QueryRowContext(ctx, `SELECT bundles * 256 FROM tree`).Scan(&first); err != nil {
		return noRows(err, "read tree")
	}
	return chunks(ctx, q, uint64(max(first, 0)), 1<<62, false, func(first uint64, data []byte) error {
		return items(first, data, func(it Item) error {
			if !it.Record.Kind.OfCall() {
				return nil
			}
			return use(it)
		})
	})
}
