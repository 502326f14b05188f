package audit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// memory is a log in memory, written well or badly by a test.
type memory struct {
	key     *Key
	records []Record
	err     error // after the records
	alter   func(*Bundle)
}

func (m *memory) add(k Kind, call string) *memory {
	m.records = append(m.records, Record{Seq: uint64(len(m.records)), At: when, Kind: k, Call: call, Body: []byte("{}")})
	return m
}

// Bundles signs at each bundle's end and at the log's.
func (m *memory) Bundles(_ context.Context, yield func(Bundle) error) error {
	var f Frontier
	for first := 0; first < len(m.records); first += BundleSize {
		b := Bundle{First: uint64(first)}
		for _, r := range m.records[first:min(first+BundleSize, len(m.records))] {
			var leaf tlog.Hash
			b.Data, leaf = AppendFrame(b.Data, r)
			b.Leaves = append(b.Leaves, leaf[:]...)
			f.Push(leaf)
		}
		note, err := m.key.Sign(f.Len(), f.Root(nil))
		if err != nil {
			return err
		}
		b.Notes = []SizedNote{{f.Len(), note}}
		if m.alter != nil {
			m.alter(&b)
		}
		if err := yield(b); err != nil {
			return err
		}
	}
	return m.err
}

// What the writer itself did wrong is found although it is signed. INV-01.
func TestVerifyPairing(t *testing.T) {
	t.Parallel()
	key := testKey(t, "agentos/log/1")
	start := func() *memory { return (&memory{key: key}).add(KindGenesis, "") }
	long := start()
	for i := range 700 {
		long.add(KindIntent, fmt.Sprint("call-", i)).add(KindOutcome, fmt.Sprint("call-", i))
	}
	tests := map[string]struct {
		log  *memory
		seq  uint64 // of the problem; 0: none
		kind ProblemKind
		live bool
	}{
		"good":                        {start().add(KindIntent, "a").add(KindDenied, "c").add(KindIntent, "b").add(KindOutcome, "b").add(KindOutcome, "a"), 0, "", false},
		"long":                        {long, 0, "", false},
		"open, live":                  {start().add(KindIntent, "a"), 0, "", true},
		"open, at rest":               {start().add(KindIntent, "a").add(KindIntent, "b").add(KindOutcome, "b"), 1, Pairing, false},
		"second outcome":              {start().add(KindIntent, "a").add(KindOutcome, "a").add(KindOutcome, "a"), 3, Pairing, true},
		"outcome first":               {start().add(KindOutcome, "a").add(KindIntent, "a"), 1, Pairing, true},
		"second intent":               {start().add(KindIntent, "a").add(KindIntent, "a"), 2, Pairing, true},
		"intent again":                {start().add(KindIntent, "a").add(KindOutcome, "a").add(KindIntent, "a"), 3, Pairing, true},
		"denied and admitted":         {start().add(KindDenied, "a").add(KindIntent, "a"), 2, Pairing, true},
		"outcome of a denied call":    {start().add(KindDenied, "a").add(KindOutcome, "a"), 2, Pairing, true},
		"denial of an admitted call":  {start().add(KindIntent, "a").add(KindDenied, "a"), 2, Pairing, true},
		"signed with a wrong number":  {func() *memory { m := start().add(KindRunEnd, ""); m.records[1].Seq = 9; return m }(), 1, Reordered, true},
		"signed without canonicality": {func() *memory { m := start().add(KindRunEnd, ""); m.records[1].Body = []byte(`{ }`); return m }(), 1, Format, true},
		"signed with an unknown kind": {start().add("call.maybe", "a"), 1, Format, true},
		"signed without a call":       {start().add(KindIntent, ""), 1, Format, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep, err := Verify(t.Context(), tt.log, Options{Key: key.Verifier, Live: tt.live})
			if err != nil {
				t.Fatal(err)
			}
			if tt.kind == "" {
				if rep.First != nil {
					t.Fatalf("%+v", *rep.First)
				}
				if rep.Records != uint64(len(tt.log.records)) || rep.Intents != rep.Outcomes+rep.Open || !rep.At.Equal(when) {
					t.Errorf("%+v", rep)
				}
				return
			}
			if rep.First == nil || rep.First.Seq != tt.seq || rep.First.Kind != tt.kind || rep.First.Next == "" {
				t.Errorf("%+v, want record %d %s", rep.First, tt.seq, tt.kind)
			}
		})
	}
}

func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	key, other := testKey(t, "agentos/log/1"), testKey(t, "agentos/log/2")
	broken := errors.New("disk")
	m := (&memory{key: key, err: broken}).add(KindGenesis, "")
	if _, err := Verify(t.Context(), m, Options{Key: key.Verifier}); !errors.Is(err, broken) {
		t.Errorf("source error: %v", err)
	}
	m.err = nil
	if _, err := Verify(t.Context(), m, Options{Key: "nonsense"}); err == nil {
		t.Error("nonsense key accepted")
	}
	foreign, err := other.Sign(1, tlog.Hash{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), m, Options{Key: key.Verifier, Older: [][]byte{foreign}}); !errors.Is(err, ErrCheckpoint) {
		t.Errorf("foreign checkpoint: %v", err)
	}
	rep, err := Verify(t.Context(), m, Options{Key: other.Verifier})
	if err != nil || rep.First == nil || rep.First.Kind != Signature {
		t.Errorf("another log's key: %+v, %v", rep.First, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, m, Options{Key: key.Verifier}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if rep, err := Verify(t.Context(), &memory{key: key}, Options{Key: key.Verifier}); err != nil || rep.First == nil {
		t.Errorf("a log of nothing: %+v, %v", rep.First, err)
	}
}

// Stored checkpoints before the newest are read first, and verified where
// anything is odd: what is wrong is named as if all were verified at once.
func TestVerifyStoredCheckpoints(t *testing.T) {
	t.Parallel()
	key, other := testKey(t, "agentos/log/1"), testKey(t, "agentos/log/2")
	sameName := testKey(t, "agentos/log/1")
	const last = 3 * BundleSize // the size of the newest is last+1
	note := func(first uint64, f func(b *Bundle)) func(*Bundle) {
		return func(b *Bundle) {
			if b.First == first {
				f(b)
			}
		}
	}
	breakSig := func(b *Bundle) { b.Notes[0].Note[len(b.Notes[0].Note)-9] ^= 1 }
	sign := func(k *Key) func(b *Bundle) {
		return func(b *Bundle) {
			c, err := OpenCheckpoint(b.Notes[0].Note, key.Verifier)
			if err == nil {
				b.Notes[0].Note, err = k.Sign(c.Size, c.Root)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	tests := map[string]struct {
		alter func(*Bundle)
		seq   uint64
		kind  ProblemKind // empty: sound
	}{
		"untouched":                        {nil, 0, ""},
		"newest, signature":                {note(last, breakSig), last, Signature},
		"newest, another key's":            {note(last, sign(sameName)), last, Signature},
		"newest, another log's":            {note(last, sign(other)), last, Signature},
		"newest, cut":                      {note(last, func(b *Bundle) { b.Notes[0].Note = b.Notes[0].Note[:40] }), last, Signature},
		"newest, missing":                  {note(last, func(b *Bundle) { b.Notes = nil }), last, Signature},
		"middle, root right, signature":    {note(BundleSize, breakSig), 0, ""},
		"middle, text":                     {note(BundleSize, func(b *Bundle) { b.Notes[0].Note[20] ^= 1 }), BundleSize, Signature},
		"middle, another log's":            {note(BundleSize, sign(other)), BundleSize, Signature},
		"middle, signature, then a break":  {func(b *Bundle) { note(BundleSize, breakSig)(b); note(last, breakSig)(b) }, BundleSize, Signature},
		"middle, filed under another size": {note(BundleSize, func(b *Bundle) { b.Notes[0].Size-- }), BundleSize, Signature},
		// Records and hashes rewritten and given a checkpoint that nobody signed:
		// its root fits, the next one's doesn't.
		"first rewritten, unsigned checkpoint": {note(0, func(b *Bundle) { forge(t, b, sameName) }), 0, Signature},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := (&memory{key: key, alter: tt.alter}).add(KindGenesis, "")
			for len(m.records) <= last {
				m.add(KindRunState, "")
			}
			rep, err := Verify(t.Context(), m, Options{Key: key.Verifier})
			if err != nil {
				t.Fatal(err)
			}
			if tt.kind == "" {
				if rep.First != nil || rep.Checkpoint != last+1 {
					t.Errorf("%+v, %+v", rep, rep.First)
				}
				return
			}
			if rep.First == nil || rep.First.Seq != tt.seq || rep.First.Kind != tt.kind {
				t.Errorf("%+v, want record %d %s", rep.First, tt.seq, tt.kind)
			}
		})
	}
}

// forge changes record 7 of the first bundle and makes hashes and checkpoint
// fit, signed by a key that isn't the log's.
func forge(t *testing.T, b *Bundle, k *Key) {
	var data, leaves []byte
	var f Frontier
	err := Frames(b.Data, func(i int, rec []byte, _ tlog.Hash) bool {
		r, err := Decode(rec)
		if err != nil {
			t.Error(err)
		}
		if i == 7 {
			r.Body = []byte(`{"forged":true}`)
		}
		var leaf tlog.Hash
		data, leaf = AppendFrame(data, r)
		leaves = append(leaves, leaf[:]...)
		f.Push(leaf)
		return true
	})
	if err != nil {
		t.Error(err)
	}
	b.Data, b.Leaves = data, leaves
	if b.Notes[0].Note, err = k.Sign(f.Len(), f.Root(nil)); err != nil {
		t.Error(err)
	}
}
