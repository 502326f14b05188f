//go:build linux

package statestore

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"agentos/internal/trusted/audit"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies a closed state directory.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	es, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		copyFile(t, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
	}
}

// database opens the file of a closed store behind its back.
func database(t testing.TB, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(dir))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

func exec(t testing.TB, dir, query string, args ...any) {
	t.Helper()
	db := database(t, dir)
	defer db.Close()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatal(err)
	}
}

// stored is a closed log taken apart into rows that a test can change; save
// writes it back the way somebody with write access would.
type stored struct {
	t       *testing.T
	dir     string
	records [][]byte // encodings, by sequence number
	leaves  []tlog.Hash
	notes   []audit.SizedNote // of the tail
}

func load(t *testing.T, dir string) *stored {
	t.Helper()
	st := &stored{t: t, dir: dir}
	db := database(t, dir)
	defer db.Close()
	rows, err := db.Query(`SELECT leaves, data FROM (SELECT n * 256 AS first, leaves, data FROM bundles UNION ALL SELECT first, leaves, data FROM tail) ORDER BY first`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var leaves, data []byte
		if err := rows.Scan(&leaves, &data); err != nil {
			t.Fatal(err)
		}
		if err := audit.Frames(data, func(_ int, rec []byte, _ tlog.Hash) bool {
			st.records = append(st.records, bytes.Clone(rec))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		hs, ok := splitHashes(leaves)
		if !ok {
			t.Fatal("leaf hashes")
		}
		st.leaves = append(st.leaves, hs...)
	}
	nrows, err := db.Query(`SELECT size, note FROM checkpoints ORDER BY size`)
	if err != nil {
		t.Fatal(err)
	}
	defer nrows.Close()
	for nrows.Next() {
		var n audit.SizedNote
		if err := nrows.Scan(&n.Size, &n.Note); err != nil {
			t.Fatal(err)
		}
		st.notes = append(st.notes, n)
	}
	return st
}

// save replaces records and leaf hashes; full bundles keep their note.
func (st *stored) save() {
	st.t.Helper()
	db := database(st.t, st.dir)
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		st.t.Fatal(err)
	}
	run := func(q string, args ...any) {
		if _, err := tx.Exec(q, args...); err != nil {
			st.t.Fatal(err)
		}
	}
	run(`DELETE FROM edge`)
	for first := 0; first < max(len(st.records), len(st.leaves)); first += 256 {
		var data, leaves []byte
		for i := first; i < min(first+256, len(st.records)); i++ {
			data = append(data, byte(len(st.records[i])>>24), byte(len(st.records[i])>>16), byte(len(st.records[i])>>8), byte(len(st.records[i])), 0)
			data = append(data, st.records[i]...)
		}
		for i := first; i < min(first+256, len(st.leaves)); i++ {
			leaves = append(leaves, st.leaves[i][:]...)
		}
		if res, err := tx.Exec(`UPDATE bundles SET data = ?, leaves = ? WHERE n = ?`, data, leaves, first/256); err != nil {
			st.t.Fatal(err)
		} else if n, _ := res.RowsAffected(); n == 0 {
			run(`INSERT INTO edge (k, leaves, data) VALUES (?, ?, ?)`, 2*first, leaves, data)
		}
	}
	for _, n := range st.notes {
		run(`INSERT INTO edge (k, data) VALUES (?, ?)`, 2*int64(n.Size)-1, n.Note)
	}
	if err := tx.Commit(); err != nil {
		st.t.Fatal(err)
	}
}

// rehash makes the stored leaf hashes fit the records.
func (st *stored) rehash() {
	st.leaves = nil
	for _, r := range st.records {
		st.leaves = append(st.leaves, tlog.RecordHash(r))
	}
}

// resign signs all of the tail's checkpoints again, as somebody with the key.
func (st *stored) resign() {
	key, _, err := loadKey(st.dir)
	if err != nil {
		st.t.Fatal(err)
	}
	for i, n := range st.notes {
		var f audit.Frontier
		for _, r := range st.records[:n.Size] {
			f.Push(tlog.RecordHash(r))
		}
		if st.notes[i].Note, err = key.Sign(n.Size, f.Root(nil)); err != nil {
			st.t.Fatal(err)
		}
	}
}
