package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"agentos/internal/control/statestore"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/gate"
)

const (
	auditSingles = 400             // durable records, one at a time
	auditCallers = 64              // at once
	auditRound   = time.Second     // of concurrent commits
	auditRounds  = 5               // of each side
	auditRecords = 800 * 256       // to verify
	auditFill    = 1024            // records a transaction while filling
	auditRun     = "run-01k5bench" // the run that all records belong to
)

// auditSection measures the audit log: durable records one at a time against a
// bare append, 64 callers against bare group commit of the same database, and
// verification against bare tree hashing of the same records.
func auditSection(ctx context.Context, scratch string) (Section, error) {
	sec := Section{Title: "Audit log",
		Note: "A record here is a call's intent or outcome of about 400 bytes, indexed, hashed and signed. The bare sides write the same bytes."}
	for _, m := range []func(context.Context, string) (Row, error){auditSingle, auditGroup, auditVerify} {
		dir, err := os.MkdirTemp(scratch, "audit-")
		if err != nil {
			return sec, err
		}
		r, err := m(ctx, dir)
		if err != nil {
			return sec, err
		}
		sec.Rows = append(sec.Rows, r)
	}
	return sec, nil
}

// auditStore opens a store with a run in it; stop ends its writer.
func auditStore(ctx context.Context, dir string) (s *statestore.Store, stop func() error, err error) {
	s, err = statestore.Open(ctx, statestore.Config{Dir: filepath.Join(dir, "state")})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() error {
		cancel()
		if err := <-done; err != nil {
			return err
		}
		return s.Close()
	}
	_, err = s.Commit(ctx, gate.Tx{
		Entries: []audit.Entry{{Kind: audit.KindRunStart, At: time.Now(), Run: auditRun, Agent: "default-agent", Owner: 1000}},
		Runs:    []gate.RunState{{Run: auditRun, Agent: "default-agent", Owner: 1000, State: "running"}},
	})
	return s, stop, err
}

// auditEntries makes records: intent and outcome in turn. Bodies are made once,
// so that what is measured is the log, not its callers.
type auditEntries struct{ intent, outcome map[string]any }

func newAuditEntries() auditEntries {
	return auditEntries{
		intent: map[string]any{"action": "tool.call", "resource": "system_inspect", "risk": "low", "grant": "grant-01k5b",
			"digest": "sha256:3b1f0f6a0d6f0b0e5d1c9f3f8f1f5d2e6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d"},
		outcome: map[string]any{"status": "ok", "duration_us": 1234, "result_bytes": 2048, "label": "untrusted",
			"result": "sha256:4c1f0f6a0d6f0b0e5d1c9f3f8f1f5d2e6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d"},
	}
}

// at is the i-th record.
func (a auditEntries) at(i int) audit.Entry {
	e := audit.Entry{Kind: audit.KindIntent, At: time.Now(), Run: auditRun, Call: "call-01k5b" + strconv.Itoa(1e15+i/2), Agent: "default-agent", Owner: 1000, Body: a.intent}
	if i%2 == 1 {
		e.Kind, e.Body = audit.KindOutcome, a.outcome
	}
	return e
}

// bytes is the encoding of a record like the others.
func (a auditEntries) bytes() ([]byte, error) {
	r, err := audit.NewRecord(a.at(0), nil)
	if err != nil {
		return nil, err
	}
	return r.Append(nil), nil
}

func auditSingle(ctx context.Context, dir string) (row Row, err error) {
	s, stop, err := auditStore(ctx, dir)
	if err != nil {
		return row, err
	}
	defer func() {
		if serr := stop(); err == nil {
			err = serr
		}
	}()
	entries := newAuditEntries()
	rec, err := entries.bytes()
	if err != nil {
		return row, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "append"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return row, err
	}
	defer f.Close()
	var ours, bare []time.Duration
	for i := range auditSingles {
		e := entries.at(i)
		start := time.Now()
		if _, err := s.Commit(ctx, gate.Tx{Entries: []audit.Entry{e}}); err != nil {
			return row, err
		}
		ours = append(ours, time.Since(start))
		start = time.Now()
		if _, err := f.Write(rec); err != nil {
			return row, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return row, err
		}
		bare = append(bare, time.Since(start))
	}
	return Row{Name: "one durable record", Value: auditMicros(ours), Unit: "µs", Base: auditMicros(bare),
		BaseName: "append and fdatasync", Target: "ratio ≤ 1.4"}, nil
}

func auditMicros(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e3
}

func auditGroup(ctx context.Context, dir string) (row Row, err error) {
	s, stop, err := auditStore(ctx, dir)
	if err != nil {
		return row, err
	}
	defer func() {
		if serr := stop(); err == nil {
			err = serr
		}
	}()
	bare, err := newBareGroup(ctx, dir)
	if err != nil {
		return row, err
	}
	defer bare.close()
	entries := newAuditEntries()
	rec, err := entries.bytes()
	if err != nil {
		return row, err
	}
	var next atomic.Int64
	var a, b []float64
	for range auditRounds {
		r, err := auditRate(ctx, func(ctx context.Context, i int) error {
			_, err := s.Commit(ctx, gate.Tx{Entries: []audit.Entry{entries.at(i)}})
			return err
		}, &next)
		if err != nil {
			return row, err
		}
		a = append(a, r)
		if r, err = auditRate(ctx, func(context.Context, int) error { return bare.append(rec) }, &next); err != nil {
			return row, err
		}
		b = append(b, r)
	}
	return Row{Name: fmt.Sprintf("%d callers at once", auditCallers), Value: auditMedian(a), Unit: "records/s", Base: auditMedian(b),
		BaseName: "group commit of one row each", Target: "ratio ≥ 0.5"}, nil
}

// auditRate counts how often f ends within a round, called by all callers. Each
// caller gets pairs of consecutive numbers: a call's intent and its outcome.
func auditRate(ctx context.Context, f func(context.Context, int) error, next *atomic.Int64) (float64, error) {
	var done atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, auditCallers)
	start := time.Now()
	for c := range auditCallers {
		wg.Go(func() {
			for time.Since(start) < auditRound && errs[c] == nil {
				i := int(next.Add(2))
				for k := range 2 {
					if errs[c] = f(ctx, i+k); errs[c] != nil {
						return
					}
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(done.Load()) / took.Seconds(), nil
}

func auditMedian(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// bareGroup is the least that makes rows of many callers durable with the same
// database: one goroutine, one transaction for all that wait.
type bareGroup struct {
	db   *sql.DB
	reqs chan bareRow
	wg   sync.WaitGroup
}

type bareRow struct {
	data []byte
	done chan error
}

func newBareGroup(ctx context.Context, dir string) (*bareGroup, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "bare.sqlite3")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(900)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE rows (seq INTEGER PRIMARY KEY, data BLOB NOT NULL)`); err != nil {
		return nil, err
	}
	b := &bareGroup{db: db, reqs: make(chan bareRow, 1024)}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	ins, err := conn.PrepareContext(ctx, `INSERT INTO rows (data) VALUES (?)`)
	if err != nil {
		return nil, err
	}
	b.wg.Go(func() {
		defer conn.Close()
		defer ins.Close()
		for r := range b.reqs {
			b.group(ctx, conn, ins, r)
		}
	})
	return b, nil
}

func (b *bareGroup) group(ctx context.Context, conn *sql.Conn, ins *sql.Stmt, first bareRow) {
	runtime.Gosched()
	rows := []bareRow{first}
	for more := true; more && len(rows) < 512; {
		select {
		case r, ok := <-b.reqs:
			if more = ok; ok {
				rows = append(rows, r)
			}
		default:
			more = false
		}
	}
	_, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`)
	for _, r := range rows {
		if err == nil {
			_, err = ins.ExecContext(ctx, r.data)
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, `COMMIT`)
	}
	for _, r := range rows {
		r.done <- err
	}
}

func (b *bareGroup) append(data []byte) error {
	r := bareRow{data: data, done: make(chan error, 1)}
	b.reqs <- r
	return <-r.done
}

func (b *bareGroup) close() {
	close(b.reqs)
	b.wg.Wait()
	b.db.Close()
}

func auditVerify(ctx context.Context, dir string) (row Row, err error) {
	s, stop, err := auditStore(ctx, dir)
	if err != nil {
		return row, err
	}
	defer func() {
		if serr := stop(); err == nil {
			err = serr
		}
	}()
	entries := newAuditEntries()
	for i := 0; i < auditRecords; i += auditFill {
		var tx gate.Tx
		for k := range auditFill {
			tx.Entries = append(tx.Entries, entries.at(i+k))
		}
		if _, err := s.Commit(ctx, tx); err != nil {
			return row, err
		}
	}
	var records [][]byte
	for it, err := range s.Log(ctx, statestore.Filter{}) {
		if err != nil {
			return row, err
		}
		records = append(records, it.Raw)
	}
	var ours, bare []float64
	for range auditRounds {
		start := time.Now()
		rep, err := s.Verify(ctx, audit.Options{})
		if err != nil {
			return row, err
		}
		ours = append(ours, float64(rep.Records)/time.Since(start).Seconds())
		if rep.First != nil {
			return row, fmt.Errorf("verify: record %d %s: %s", rep.First.Seq, rep.First.Kind, rep.First.Detail)
		}
		rate, root, err := bareTree(records)
		if err != nil {
			return row, err
		}
		if root != rep.Root {
			return row, fmt.Errorf("verify: roots differ")
		}
		bare = append(bare, rate)
	}
	return Row{Name: fmt.Sprintf("verify %d records", len(records)), Value: auditMedian(ours), Unit: "records/s", Base: auditMedian(bare),
		BaseName: "tlog hashing in memory, one core", Target: "ratio ≥ 0.8"}, nil
}

// bareTree hashes records into a tree with x/mod's tlog alone.
func bareTree(records [][]byte) (rate float64, root tlog.Hash, err error) {
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(idx []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(idx))
		for i, x := range idx {
			out[i] = stored[x]
		}
		return out, nil
	})
	start := time.Now()
	for i, r := range records {
		hs, err := tlog.StoredHashes(int64(i), r, read)
		if err != nil {
			return 0, root, err
		}
		stored = append(stored, hs...)
	}
	root, err = tlog.TreeHash(int64(len(records)), read)
	return float64(len(records)) / time.Since(start).Seconds(), root, err
}
