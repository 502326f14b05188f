package audit

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// The frontier gives the roots that x/mod's tlog gives, at every size, whether
// it counts records or bundles with a tail.
func TestFrontier(t *testing.T) {
	t.Parallel()
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(idx []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(idx))
		for i, x := range idx {
			out[i] = stored[x]
		}
		return out, nil
	})
	var flat, bundles, tail Frontier
	var leaves []tlog.Hash
	for n := range int64(1100) {
		want, err := tlog.TreeHash(n, read)
		if err != nil {
			t.Fatal(err)
		}
		if flat.Root(nil) != want || bundles.Root(&tail) != want {
			t.Fatalf("root at size %d", n)
		}
		again, ok := NewFrontier(flat.Len(), flat.Peaks())
		if !ok || again.Root(nil) != want {
			t.Fatalf("restored frontier at size %d", n)
		}
		rec := fmt.Appendf(nil, "record %d", n)
		hs, err := tlog.StoredHashes(n, rec, read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hs...)
		flat.Push(hs[0])
		tail.Push(hs[0])
		if leaves = append(leaves, hs[0]); len(leaves) == BundleSize {
			if subtree(leaves) != tail.Peaks()[0] {
				t.Fatalf("subtree at size %d", n)
			}
			bundles.Push(subtree(leaves))
			leaves, tail = nil, Frontier{}
		}
	}
	if _, ok := NewFrontier(3, make([]tlog.Hash, 3)); ok {
		t.Error("three peaks for three leaves")
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	r := Record{At: when, Kind: KindRunEnd, Body: []byte("{}")}
	one, _ := AppendFrame(nil, r)
	two, _ := AppendFrame(one, r)
	count := func(b []byte) (n int, err error) {
		err = Frames(b, func(int, []byte, tlog.Hash) bool { n++; return true })
		return n, err
	}
	if n, err := count(two); n != 2 || err != nil {
		t.Error(n, err)
	}
	huge := append([]byte{0xff, 0xff, 0xff, 0xff, 0}, two...)
	marked := append([]byte{}, two...)
	marked[4] = 1
	for name, b := range map[string][]byte{"cut": two[:len(two)-1], "header": two[:3], "length": huge, "leaf prefix": marked} {
		if _, err := count(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzFrames: what is cut out of framed bytes are the bytes, in order.
func FuzzFrames(f *testing.F) {
	b, _ := AppendFrame(nil, Record{At: when, Kind: KindRunEnd, Body: []byte("{}")})
	f.Add(append(b, b...))
	f.Fuzz(func(t *testing.T, b []byte) {
		at := 0
		err := Frames(b, func(_ int, rec []byte, leaf tlog.Hash) bool {
			at += frameHeader
			if !bytes.Equal(b[at:at+len(rec)], rec) || leaf != tlog.RecordHash(rec) {
				t.Fatalf("record at %d", at)
			}
			at += len(rec)
			return true
		})
		if err == nil && at != len(b) {
			t.Fatalf("%d of %d bytes", at, len(b))
		}
	})
}
