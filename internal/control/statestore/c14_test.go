//go:build linux

package statestore

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"agentos/internal/trusted/audit"
)

// The table of C-14, over a log that is all tail and over one with full
// bundles. Every case names the first bad record. Spec: INV-11.
func TestTampering(t *testing.T) {
	t.Parallel()
	for _, size := range []int{101, 701} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			tampering(t, size)
		})
	}
}

func tampering(t *testing.T, size int) {
	origin := stateDir(t)
	s, stop := open(t, origin)
	fill(t, s, 61)
	oldNote, _, err := s.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	old := stateDir(t)
	copyDir(t, origin, old)
	s, stop = open(t, origin)
	fill(t, s, size)
	saved, _, err := s.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := s.Key()
	stop()

	last := uint64(size - 1)
	cut := uint64(size - 10)
	flip := func(i int, at string) func(st *stored) {
		return func(st *stored) {
			st.records[i] = bytes.Clone(st.records[i])
			st.records[i][bytes.Index(st.records[i], []byte(at))] ^= 1
		}
	}
	body := func(i int) func(st *stored) {
		return func(st *stored) {
			st.records[i] = bytes.Replace(st.records[i], []byte("1000"), []byte("1001"), 1)
			st.records[i] = bytes.Replace(st.records[i], []byte(`"status":"ok"`), []byte(`"status":"no"`), 1)
		}
	}
	drop := func(i int) func(st *stored) {
		return func(st *stored) { st.records = append(st.records[:i:i], st.records[i+1:]...) }
	}
	all := func(fs ...func(st *stored)) func(st *stored) {
		return func(st *stored) {
			for _, f := range fs {
				f(st)
			}
		}
	}
	rehash := func(st *stored) { st.rehash() }
	resign := func(st *stored) { st.resign() }
	cutNotes := func(n uint64) func(st *stored) {
		return func(st *stored) {
			for len(st.notes) > 0 && st.notes[len(st.notes)-1].Size > n {
				st.notes = st.notes[:len(st.notes)-1]
			}
		}
	}
	truncate := func(st *stored) { st.records, st.leaves = st.records[:cut], st.leaves[:cut] }
	rewriteTail := all(body(int(cut)), body(size-1), rehash)
	swap := func(i, j int) func(st *stored) {
		return func(st *stored) { st.records[i], st.records[j] = st.records[j], st.records[i] }
	}
	tests := []struct {
		name  string
		do    func(st *stored)
		seq   uint64
		kind  audit.ProblemKind
		saved bool              // found only with the saved checkpoint
		alone audit.ProblemKind // without one, where that differs
	}{
		{"flip a byte of a body", flip(40, `"status"`), 40, audit.Altered, false, ""},
		{"flip a byte of the framing brace", flip(40, `{`), 40, audit.Altered, false, ""},
		{"change a value, still a record", body(40), 40, audit.Altered, false, ""},
		{"change the last record", body(size - 1), last, audit.Altered, false, ""},
		{"delete the last", drop(size - 1), last, audit.Missing, false, ""},
		{"delete the last and its hash", all(drop(size-1), rehash), last, audit.Missing, false, ""},
		{"delete one in the middle", drop(30), 30, audit.Missing, false, ""},
		{"delete one and recompute the hashes", all(drop(30), rehash), 30, audit.Missing, false, ""},
		{"swap two", swap(20, 70), 20, audit.Reordered, false, ""},
		{"swap two neighbours", swap(20, 21), 20, audit.Reordered, false, ""},
		{"swap two and recompute the hashes", all(swap(20, 70), rehash), 20, audit.Reordered, false, ""},
		{"truncate", truncate, cut, audit.Missing, false, ""},
		{"truncate, checkpoints too", all(truncate, cutNotes(cut)), cut, audit.Missing, true, ""},
		{"rewrite the tail", rewriteTail, cut, audit.Rewritten, false, ""},
		{"rewrite the tail, drop its checkpoints", all(rewriteTail, cutNotes(cut)), cut, audit.Rewritten, false, audit.Signature},
		{"rewrite the tail, cut its checkpoints and the log", all(rewriteTail, cutNotes(cut), truncate), cut, audit.Missing, true, ""},
		{"rewrite the tail, sign again", all(rewriteTail, resign), 61, audit.Rewritten, true, ""},
		{"damage a stored hash", func(st *stored) { st.leaves[40][3] ^= 1 }, 40, audit.Format, false, ""},
		{"damage a checkpoint", func(st *stored) { st.notes[len(st.notes)-1].Note[9] ^= 1 }, uint64(size - 1), audit.Signature, false, ""},
		{"insert a copy", func(st *stored) {
			st.records = append(st.records[:50:50], append([][]byte{st.records[10]}, st.records[50:]...)...)
			st.records = st.records[:size]
		}, 50, audit.Reordered, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := stateDir(t)
			copyDir(t, origin, dir)
			st := load(t, dir)
			tt.do(st)
			st.save()
			r, err := OpenReadOnly(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			alone, err := r.Verify(t.Context(), audit.Options{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			if (alone.First == nil) != tt.saved {
				t.Fatalf("without a saved checkpoint: %+v", alone.First)
			}
			if tt.alone == "" {
				tt.alone = tt.kind
			}
			if !tt.saved && (alone.First.Seq != tt.seq || alone.First.Kind != tt.alone) {
				t.Errorf("without a saved checkpoint: %+v, want record %d %s", *alone.First, tt.seq, tt.alone)
			}
			rep, err := r.Verify(t.Context(), audit.Options{Key: key, Older: [][]byte{saved, oldNote}})
			if err != nil {
				t.Fatal(err)
			}
			if rep.First == nil {
				t.Fatal("not found")
			}
			if rep.First.Seq != tt.seq || rep.First.Kind != tt.kind || rep.First.Detail == "" || rep.First.Next == "" {
				t.Errorf("got %+v, want record %d %s", *rep.First, tt.seq, tt.kind)
			}
		})
	}
	t.Run("restore an old copy", func(t *testing.T) {
		t.Parallel()
		r, err := OpenReadOnly(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if rep, err := r.Verify(t.Context(), audit.Options{Key: key}); err != nil || rep.First != nil {
			t.Fatalf("the old copy alone: %+v, %v", rep.First, err)
		}
		rep, err := r.Verify(t.Context(), audit.Options{Key: key, Older: [][]byte{saved}})
		if err != nil || rep.First == nil {
			t.Fatalf("not found: %v", err)
		}
		if rep.First.Seq != 61 || rep.First.Kind != audit.Missing {
			t.Errorf("got %+v", *rep.First)
		}
	})
	t.Run("untouched", func(t *testing.T) {
		t.Parallel()
		rep := verifyOK(t, origin, audit.Options{Key: key, Older: [][]byte{oldNote, saved}})
		st := load(t, origin)
		var f audit.Frontier
		for _, r := range st.records {
			f.Push(tlog.RecordHash(r))
		}
		if rep.Root != f.Root(nil) {
			t.Error("root differs from the one computed record by record")
		}
	})
}
