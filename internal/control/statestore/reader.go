//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
)

// Reader answers questions about a state directory; it never writes to it. Safe
// for concurrent use, also beside a writer in this or another process.
type Reader struct {
	dir string
	db  *sql.DB
	key string // verifier key kept beside the log
}

// OpenReadOnly opens a state directory without taking its lock: while another
// instance runs, or from a medium that can't be written. A crash that the
// writer has not recovered from yet is visible as open calls and runs.
func OpenReadOnly(ctx context.Context, dir string) (*Reader, error) {
	if !filepath.IsAbs(dir) {
		return nil, fault.New(fault.Usage, "give an absolute path", "open state directory %q: not absolute", dir)
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	if fi, err := os.Stat(filepath.Join(dir, dbName)); err != nil || fi.Size() == 0 {
		return nil, fault.New(fault.NotFound, "run an agent once to create it, or name the right state directory", "open state directory %q: no log in it", dir)
	}
	key, err := readKey(filepath.Join(dir, keyName))
	if err != nil {
		return nil, err
	}
	immutable := ""
	if unix.Access(dir, unix.W_OK) != nil {
		// SQLite can't make its shared memory here. Without a WAL the file alone
		// is the whole state and nobody can be writing it.
		if !walEmpty(dir) {
			return nil, fault.New(fault.Unavailable, "copy the directory to a writable place and read it there",
				"read state directory %q: it can't be written and its last commits are in the WAL", dir)
		}
		immutable = "1"
	}
	r, err := newReader(dir, key.Verifier, immutable)
	if err != nil {
		return nil, err
	}
	v, err := version(ctx, r.db, dir)
	if err == nil && v > len(migrations) {
		err = newerFault(dir, v, len(migrations))
	}
	if err == nil && v < len(migrations) {
		err = fault.New(fault.Conflict, "start agentos once on it: that migrates it", "read state directory %q: format %d, this program reads %d", dir, v, len(migrations))
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func newReader(dir, key, immutable string) (*Reader, error) {
	params := []string{"mode", "ro", "_pragma", "busy_timeout(10000)", "_pragma", "query_only(1)"}
	if immutable != "" {
		params = append(params, "immutable", immutable)
	}
	db, err := sql.Open("sqlite", dsn(dir, params...))
	if err != nil {
		return nil, sqlFault(err, dir, "open database")
	}
	db.SetMaxOpenConns(4)
	return &Reader{dir: dir, db: db, key: key}, nil
}

// Close ends the reader's connections.
func (r *Reader) Close() error { return r.db.Close() }

// VerifierKey is the public key kept beside the log: enough to find accidents,
// not somebody who could write here and sign.
func (r *Reader) VerifierKey() string { return r.key }

// Item is one record as stored.
type Item struct {
	Record audit.Record
	Raw    []byte // its encoding
	Leaf   tlog.Hash
}

// Filter of Log; zero values don't filter.
type Filter struct {
	Run, Call string
	Kinds     []audit.Kind
	From      uint64 // first sequence number
	Limit     int    // at most so many
	Tail      bool   // the last Limit instead of the first
}

func (f *Filter) match(r *audit.Record) bool {
	return r.Seq >= f.From && (f.Run == "" || f.Run == r.Run) && (f.Call == "" || f.Call == r.Call) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, r.Kind))
}

// Log iterates over the records that match, in order, on one snapshot. It stops
// at the first error. Records are decoded, not verified against the tree.
func (r *Reader) Log(ctx context.Context, f Filter) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		if err := r.log(ctx, f, yield); err != nil {
			yield(Item{}, sqlFault(err, r.dir, "read log"))
		}
	}
}

var errDone = errors.New("enough")

func (r *Reader) log(ctx context.Context, f Filter, yield func(Item, error) bool) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() // nothing was written
	lo, hi, err := bounds(ctx, tx, f)
	if err != nil {
		return err
	}
	if f.Tail && f.Limit > 0 {
		items, err := lastItems(ctx, tx, f, lo, hi)
		if err != nil {
			return err
		}
		for _, it := range items {
			if !yield(it, nil) {
				return nil
			}
		}
		return nil
	}
	n := 0
	err = chunks(ctx, tx, lo, hi, false, func(first uint64, data []byte) error {
		return items(first, data, func(it Item) error {
			if !f.match(&it.Record) || it.Record.Seq >= hi {
				return nil
			}
			if n++; !yield(it, nil) || n == f.Limit {
				return errDone
			}
			return nil
		})
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// lastItems walks backwards until it has f.Limit matches.
func lastItems(ctx context.Context, q querier, f Filter, lo, hi uint64) ([]Item, error) {
	var out []Item
	err := chunks(ctx, q, lo, hi, true, func(first uint64, data []byte) error {
		var part []Item
		err := items(first, data, func(it Item) error {
			if f.match(&it.Record) && it.Record.Seq < hi {
				part = append(part, it)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if out = append(part, out...); len(out) >= f.Limit {
			return errDone
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDone) {
		return nil, err
	}
	return out[max(0, len(out)-f.Limit):], nil
}

// bounds narrows a filter to [lo, hi) by the tables of runs and calls.
func bounds(ctx context.Context, q querier, f Filter) (lo, hi uint64, err error) {
	lo, hi = f.From, 1<<62
	narrow := func(first int64, end sql.NullInt64) {
		lo = max(lo, uint64(first))
		if end.Valid {
			hi = min(hi, uint64(end.Int64))
		}
	}
	var first int64
	var end sql.NullInt64
	if f.Run != "" {
		err := q.QueryRowContext(ctx, `SELECT first_seq, last_seq FROM runs WHERE run = ?`, f.Run).Scan(&first, &end)
		if err == nil {
			narrow(first, end)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return 0, 0, fmt.Errorf("find run: %w", err)
		}
	}
	if f.Call != "" {
		err := q.QueryRowContext(ctx, `SELECT intent, outcome + 1 FROM calls WHERE call = ?`, f.Call).Scan(&first, &end)
		if errors.Is(err, sql.ErrNoRows) { // then it is behind the last bundle
			err = q.QueryRowContext(ctx, `SELECT bundles * 256, NULL FROM tree`).Scan(&first, &end)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("find call: %w", err)
		}
		narrow(first, end)
	}
	return lo, hi, nil
}

// chunks calls use with the stored pieces that overlap [lo, hi), in order or
// backwards.
func chunks(ctx context.Context, q querier, lo, hi uint64, backwards bool, use func(first uint64, data []byte) error) error {
	if hi <= lo {
		return nil
	}
	order := "ASC"
	parts := []string{`SELECT n * 256, data FROM bundles WHERE n >= ? / 256 AND n <= ? / 256 ORDER BY n `,
		`SELECT k / 2, data FROM edge WHERE k % 2 = 0 AND k > 2 * (? - 256) AND k <= 2 * ? ORDER BY k `}
	if backwards {
		order = "DESC"
		slices.Reverse(parts)
	}
	for _, p := range parts {
		if err := eachChunk(ctx, q, p+order, lo, hi-1, use); err != nil {
			return err
		}
	}
	return nil
}

func eachChunk(ctx context.Context, q querier, query string, lo, last uint64, use func(uint64, []byte) error) error {
	rows, err := q.QueryContext(ctx, query, int64(lo), int64(last))
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var first int64
		var data []byte
		if err := rows.Scan(&first, &data); err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		if err := use(uint64(first), data); err != nil {
			return err
		}
	}
	return rows.Err()
}

// items decodes a stored piece; a record that isn't where it says is Corrupt.
func items(first uint64, data []byte, use func(Item) error) error {
	var failed error
	err := audit.Frames(data, func(i int, raw []byte, leaf tlog.Hash) bool {
		rec, err := audit.Decode(raw)
		if err == nil && rec.Seq != first+uint64(i) {
			err = fmt.Errorf("it carries number %d", rec.Seq)
		}
		if err != nil {
			failed = fault.Wrap(err, fault.Corrupt, nextCorrupt, "read record %d", first+uint64(i))
		} else {
			failed = use(Item{Record: rec, Raw: raw, Leaf: leaf})
		}
		return failed == nil
	})
	if failed == nil && err != nil {
		return fault.Wrap(err, fault.Corrupt, nextCorrupt, "read records from %d", first)
	}
	return failed
}

// recordAt reads one record.
func recordAt(ctx context.Context, q querier, seq uint64) (Item, error) {
	var found *Item
	err := chunks(ctx, q, seq, seq+1, false, func(first uint64, data []byte) error {
		return items(first, data, func(it Item) error {
			if it.Record.Seq == seq {
				found = &it
				return errDone
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, errDone) {
		return Item{}, err
	}
	if found == nil {
		return Item{}, fault.New(fault.NotFound, "list records with `agentos audit log`", "find record %d", seq)
	}
	return *found, nil
}

// Record reads one record by its sequence number. Faults: NotFound, Corrupt.
func (r *Reader) Record(ctx context.Context, seq uint64) (Item, error) {
	if seq >= 1<<53 {
		return Item{}, fault.New(fault.NotFound, "list records with `agentos audit log`", "find record %d", seq)
	}
	it, err := recordAt(ctx, r.db, seq)
	return it, sqlFault(err, r.dir, "read record %d", seq)
}
