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
