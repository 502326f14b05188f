//go:build linux

// Package statestore keeps the state of one AgentOS instance in one directory:
// the audit log, runs, budgets, principals and payloads in SQLite, and the key
// that signs checkpoints. It implements gate.Journal.
//
// State owned: the state directory (0700) with agentos.sqlite3 and its WAL,
// audit.key and lock (each 0600). Imports: trusted/{audit,budget,gate},
// lib/fault, modernc.org/sqlite, x/mod tlog. Imported by: control (daemon), cmd.
// Concurrency: whoever holds Store.turn owns the write connection and the tree
// state: a lone caller of Commit, or Run for all that wait meanwhile. Readers use
// connections of their own. Locks: Store.turn, a leaf.
// Invariants: INV-01 (an intent has at most one outcome; Open gives the ones
// that a crash left open theirs), INV-03 (a reservation and its intent are one
// transaction), INV-11 (each commit signs the tree head over all records); the
// tree in memory is the one on disk, or the journal is closed for good.
// Formats: docs/spec/state.md, docs/spec/audit-log.md.
// Tests: *_test.go here: the C-14 table, interleavings, the kill -9 matrix, full
// disk, read-only directory, second instance, corrupt bytes.
package statestore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/gate"
)

// Config of a store.
type Config struct {
	Dir string           // state directory; created 0700 when absent
	Now func() time.Time // wall clock for records of recovery; nil: time.Now
}

// Store is an open state directory. Safe for concurrent use.
type Store struct {
	*Reader
	cfg     Config
	key     *audit.Key
	index   []byte // key of the payload index
	lock    *os.File
	rw      *sql.DB
	conn    *sql.Conn // the writer's
	st      statements
	tree    tree
	open    map[string]uint64   // intents without outcome
	alive   map[string]struct{} // runs without an end
	begun   map[string]struct{} // calls that the index doesn't hold yet
	indexed string              // the greatest call in the index
	failed  error               // set once, by the writer: the journal is closed for good
	turn    chan struct{}       // holds one: who has put it there may write
	reqs    chan *request
	stopped chan struct{} // closed when Run has returned
	callers atomic.Int32  // in Commit
}

var _ gate.Journal = (*Store)(nil)

// Open locks the directory, migrates the database, checks the newest signed
// checkpoint against the end of the log and records what a crash left open. It
// starts nothing: Run is the writer.
//
// Faults: Conflict (another instance, a newer format), Unavailable (a directory
// that others can reach or that can't be written, a full disk), Corrupt.
func Open(ctx context.Context, cfg Config) (_ *Store, err error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := prepareDir(cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := takeLock(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, lock: lock, open: make(map[string]uint64), alive: make(map[string]struct{}), begun: make(map[string]struct{}), reqs: make(chan *request, queueLength), turn: make(chan struct{}, 1), stopped: make(chan struct{})}
	s.turn <- struct{}{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if s.key, s.index, err = loadKey(cfg.Dir); err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	if err := s.recover(ctx); err != nil {
		return nil, err
	}
	if s.Reader, err = newReader(cfg.Dir, s.key.Verifier, ""); err != nil {
		return nil, err
	}
	return s, nil
}

// connect opens the write connection, brings the schema up to date and
// prepares the statements.
func (s *Store) connect(ctx context.Context) error {
	// SQLite's own default on Linux builds; it decides about half the commit time.
	if _, err := sqlite.Fdatasync(true); err != nil {
		return fault.Wrap(err, fault.Internal, "", "switch sqlite to fdatasync")
	}
	if err := createDatabase(s.cfg.Dir); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(s.cfg.Dir, "_pragma", "busy_timeout(1000)", "_pragma", "journal_mode(WAL)",
		"_pragma", "synchronous(FULL)", "_pragma", "foreign_keys(1)", "_pragma", "wal_autocheckpoint(900)"))
	if err != nil {
		return sqlFault(err, s.cfg.Dir, "open database")
	}
	db.SetMaxOpenConns(1)
	s.rw = db
	if s.conn, err = db.Conn(ctx); err != nil {
		return sqlFault(err, s.cfg.Dir, "open database")
	}
	if err := checkModes(ctx, s.conn, s.cfg.Dir); err != nil {
		return err
	}
	if err := migrate(ctx, s.conn, s.cfg.Dir, migrations); err != nil {
		return err
	}
	if err := growWAL(s.cfg.Dir); err != nil {
		return err
	}
	return s.st.prepare(ctx, s.conn, s.cfg.Dir)
}

// Key is the public key of the log, as `agentos audit checkpoint` prints it.
func (s *Store) Key() string { return s.key.Verifier }

// Close releases the directory. Call it after Run has returned.
func (s *Store) Close() error {
	var err error
	if s.Reader != nil {
		err = s.Reader.Close()
	}
	return errors.Join(err, s.release())
}

func (s *Store) release() error {
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.st.close(), s.conn.Close())
	}
	if s.rw != nil {
		errs = append(errs, s.rw.Close())
	}
	if s.lock != nil {
		// By name: a child between fork and exec still has the descriptor.
		errs = append(errs, unix.Flock(int(s.lock.Fd()), unix.LOCK_UN), s.lock.Close())
	}
	return errors.Join(errs...)
}
