//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"fmt"
	"maps"

	"golang.org/x/mod/sumdb/tlog"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
)

// tree is the log's end in memory: everything needed to append and sign. A
// transaction works on a copy; the store keeps it only when the disk has it.
type tree struct {
	size    uint64
	bundles audit.Frontier // over full bundles
	tail    audit.Frontier // over the records after them
	data    []byte         // frames of the records after them
	leaves  []byte
	calls   []place // records after them that belong to calls
}

// place is where a call's record is.
type place struct {
	call string
	kind audit.Kind
	seq  uint64
}

// fork copies what a transaction changes. data, leaves and calls share their
// arrays: appending writes only behind the length that the original sees.
func (t tree) fork() tree {
	t.bundles, t.tail = t.bundles.Clone(), t.tail.Clone()
	return t
}

func (t *tree) root() tlog.Hash { return t.bundles.Root(&t.tail) }

// work is one transaction in the making.
type work struct {
	s        *Store
	tree     tree
	segment  uint64 // first record that is not on disk yet, within the tail
	dataAt   int    // its place in tree.data
	leavesAt int
	used     map[balanceKey]int64
	opened   map[string]uint64   // intents of this transaction without outcome
	closed   map[string]struct{} // calls that got their outcome in it
	begun    map[string]struct{} // its calls that the index doesn't hold yet
	indexed  string              // Store.indexed after it
	bundled  bool                // it wrote a bundle: what began before is in the index
}

type balanceKey struct {
	key      budget.Key
	resource budget.Resource
}

var background = context.Background() // a commit, once begun, isn't interrupted

// transact writes a group in one transaction. On error nothing is on disk; bad
// is the index of the request that alone is wrong, or -1.
func (s *Store) transact(group []*request) (w *work, bad int, err error) {
	w = s.newWork()
	bad = -1
	err = s.inTx(background, func() error {
		for i, r := range group {
			r.receipt.FirstSeq = w.tree.size
			if err := w.apply(r.tx); err != nil {
				if fault.KindOf(err) == fault.Conflict {
					bad = i
				}
				return err
			}
		}
		return w.flush()
	})
	return w, bad, err
}

// keep takes over what a transaction changed, after it became durable.
func (s *Store) keep(w *work, group []*request) {
	s.tree = w.tree
	for call := range w.closed {
		delete(s.open, call)
	}
	maps.Copy(s.open, w.opened)
	if w.bundled {
		clear(s.begun)
	}
	maps.Copy(s.begun, w.begun)
	s.indexed = w.indexed
	for _, r := range group {
		r.receipt.Size = w.tree.size
		for _, run := range r.tx.runs {
			if run.Reason == "" {
				s.alive[run.Run] = struct{}{}
			} else {
				delete(s.alive, run.Run)
			}
		}
	}
}

func (s *Store) newWork() *work {
	w := &work{s: s, tree: s.tree.fork(), used: make(map[balanceKey]int64), opened: make(map[string]uint64),
		closed: make(map[string]struct{}), begun: make(map[string]struct{}), indexed: s.indexed}
	w.mark()
	return w
}

// mark says that everything so far is on disk.
func (w *work) mark() {
	w.segment, w.dataAt, w.leavesAt = w.tree.size, len(w.tree.data), len(w.tree.leaves)
}

// apply appends the records of a Tx to the tree and writes what belongs to
// them: reservations, run states.
func (w *work) apply(p *prepared) error {
	first := w.tree.size
	for i := range p.entries {
		if err := w.entry(&p.entries[i]); err != nil {
			return err
		}
	}
	end := w.tree.size
	for _, r := range p.reservations {
		if err := w.one(w.s.st.reserve, "reserve for call %q: it has a reservation", r.call, r.call, r.keys, r.amount); err != nil {
			return err
		}
	}
	for _, c := range p.settlements {
		if err := w.one(w.s.st.settle, "settle call %q: no open reservation", c.Call, c.Call); err != nil {
			return err
		}
		for _, k := range c.Keys {
			for res, n := range c.Used {
				w.used[balanceKey{k, res}] += n
			}
		}
	}
	for _, r := range p.runs {
		var last any
		if r.Reason != "" {
			last = int64(end)
		}
		if err := w.one(w.s.st.run, "set state of run %q: it has ended", r.Run,
			r.Run, r.Agent, r.Owner, r.State, r.Reason, int64(first), last); err != nil {
			return err
		}
	}
	return nil
}

// one runs a statement that must change exactly one row; else the Tx is in
// conflict with the state.
func (w *work) one(st *sql.Stmt, conflict, name string, args ...any) error {
	res, err := st.ExecContext(background, args...)
	if err != nil {
		return fmt.Errorf("write %.40q: %w", name, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("write %.40q: %w", name, err)
	}
	if n != 1 {
		return fault.New(fault.Conflict, nextBug, conflict, name)
	}
	return nil
}

func (w *work) entry(e *preparedEntry) error {
	rec := e.record
	rec.Seq = w.tree.size
	if err := w.call(&rec); err != nil {
		return err
	}
	if _, alive := w.s.alive[rec.Run]; rec.Run != "" && !alive {
		// A record after its run's end is rare; it moves the end of the range.
		if _, err := w.s.st.extend.ExecContext(background, int64(rec.Seq)+1, rec.Run); err != nil {
			return fmt.Errorf("extend run: %w", err)
		}
	}
	for _, p := range e.payloads {
		c, err := w.payload(p)
		if err != nil {
			return err
		}
		rec.Payloads[p.name] = c
	}
	var leaf tlog.Hash
	w.tree.data, leaf = audit.AppendFrame(w.tree.data, rec)
	w.tree.leaves = append(w.tree.leaves, leaf[:]...)
	w.tree.tail.Push(leaf)
	w.tree.size++
	if w.tree.tail.Len() == audit.BundleSize {
		return w.bundle()
	}
	return nil
}

// payload stores the content unless it is there, and returns its commitment.
func (w *work) payload(p preparedPayload) (string, error) {
	res, err := w.s.st.payload.ExecContext(background, p.dedup, p.commitment, p.salt, p.media, p.data)
	if err != nil {
		return "", fmt.Errorf("write payload: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return p.commitment, err
	}
	var c string
	if err := w.s.st.known.QueryRowContext(background, p.dedup).Scan(&c); err != nil {
		return "", fmt.Errorf("read payload: %w", err)
	}
	return c, nil
}

// bundle moves a full tail into one row, with a checkpoint at its boundary.
func (w *work) bundle() error {
	t := &w.tree
	n := t.bundles.Len()
	t.bundles.Push(t.tail.Peaks()[0])
	note, err := w.s.key.Sign(t.size, t.bundles.Root(nil))
	if err != nil {
		return fmt.Errorf("sign checkpoint: %w", err)
	}
	if err := w.index(); err != nil {
		return err
	}
	st := &w.s.st
	if _, err := st.bundle.ExecContext(background, int64(n), note, t.leaves, t.data); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if _, err := st.cut.ExecContext(background, int64(t.size)); err != nil {
		return fmt.Errorf("move tail: %w", err)
	}
	if _, err := st.peaks.ExecContext(background, int64(t.bundles.Len()), joinHashes(t.bundles.Peaks()), int64(w.settled())); err != nil {
		return fmt.Errorf("write tree: %w", err)
	}
	t.tail = audit.Frontier{}
	t.data, t.leaves, t.calls = make([]byte, 0, cap(t.data)), make([]byte, 0, cap(t.leaves)), make([]place, 0, cap(t.calls))
	w.mark()
	return nil
}

// settled is the first record that may be an intent without outcome: recovery
// looks from there on, so that commits need no index of open calls.
func (w *work) settled() uint64 {
	first := w.tree.size
	for _, seq := range w.opened {
		first = min(first, seq)
	}
	for call, seq := range w.s.open {
		if _, closed := w.closed[call]; seq < first && !closed {
			first = seq
		}
	}
	return first
}

// flush writes the records that no bundle took with their checkpoint, and the
// balances.
func (w *work) flush() error {
	t := &w.tree
	if t.size > w.segment {
		note, err := w.s.key.Sign(t.size, t.root())
		if err != nil {
			return fmt.Errorf("sign checkpoint: %w", err)
		}
		// One statement and one page: records at even keys, checkpoints at odd.
		if _, err := w.s.st.edge.ExecContext(background, int64(2*w.segment), t.leaves[w.leavesAt:], t.data[w.dataAt:],
			int64(2*t.size-1), note); err != nil {
			return fmt.Errorf("write records: %w", err)
		}
	}
	for k, n := range w.used {
		if _, err := w.s.st.balance.ExecContext(background, string(k.key), string(k.resource), n); err != nil {
			return fmt.Errorf("write balance: %w", err)
		}
	}
	return nil
}

func joinHashes(hs []tlog.Hash) []byte {
	b := make([]byte, 0, len(hs)*tlog.HashSize)
	for _, h := range hs {
		b = append(b, h[:]...)
	}
	return b
}

func splitHashes(b []byte) ([]tlog.Hash, bool) {
	if len(b)%tlog.HashSize != 0 {
		return nil, false
	}
	hs := make([]tlog.Hash, 0, len(b)/tlog.HashSize)
	for ; len(b) > 0; b = b[tlog.HashSize:] {
		hs = append(hs, tlog.Hash(b[:tlog.HashSize]))
	}
	return hs, true
}
