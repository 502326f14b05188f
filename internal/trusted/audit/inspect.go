package audit

import (
	"bytes"
	"crypto/sha256"
	"hash/maphash"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// inspector looks at one bundle without knowing the others; used by all
// workers at once, it holds only constants.
type inspector struct {
	verifier note.Verifier
	open     func([]byte, note.Verifier) (Checkpoint, error) // openCheckpoint or claim
	seed     maphash.Seed
}

// fingerprint stands for a call ID in the pairing tables. The seed is random, so
// nobody can prepare two IDs that collide.
type fingerprint uint64

type event struct {
	seq  uint64
	kind byte // 'i', 'o', 'd'
	call fingerprint
}

// finding is the first odd thing inside a bundle, still unexplained.
type finding struct {
	index int
	what  byte // 'f' frame, 'd' undecodable, 's' sequence number, 'l' leaf hash, 'n' number of leaf hashes
	err   error
}

type inspected struct {
	bundle  Bundle
	count   int
	leaves  []tlog.Hash
	root    tlog.Hash // of a full bundle
	odd     *finding
	events  []event
	signed  []Checkpoint // the notes that open, in order
	badNote *SizedNote
	noteErr error
	last    []byte // last record
}

func (in *inspector) inspect(b Bundle) *inspected {
	r := &inspected{bundle: b, leaves: make([]tlog.Hash, 0, BundleSize), events: make([]event, 0, BundleSize)}
	note := func(what byte, err error) {
		if r.odd == nil {
			r.odd = &finding{index: r.count, what: what, err: err}
		}
	}
	for data := b.Data; len(data) > 0; r.count++ {
		leaf, rest, err := nextFrame(data)
		if err != nil || r.count == BundleSize {
			note('f', errFrame)
			break
		}
		data = rest
		r.last = leaf[1:]
		h := tlog.Hash(sha256.Sum256(leaf))
		r.leaves = append(r.leaves, h)
		in.record(r, leaf[1:], note)
		if at := r.count * tlog.HashSize; len(b.Leaves) < at+tlog.HashSize {
			note('n', nil)
		} else if !bytes.Equal(b.Leaves[at:at+tlog.HashSize], h[:]) {
			note('l', nil)
		}
	}
	if len(b.Leaves) != r.count*tlog.HashSize {
		note('n', nil)
	}
	if r.count == BundleSize {
		r.root = subtree(r.leaves)
	}
	for i, n := range b.Notes {
		c, err := in.open(n.Note, in.verifier)
		if err == nil && c.Size != n.Size {
			err = ErrCheckpoint
		}
		if err != nil {
			if r.badNote == nil {
				r.badNote, r.noteErr = &b.Notes[i], err
			}
			continue
		}
		r.signed = append(r.signed, c)
	}
	return r
}

func (in *inspector) record(r *inspected, rec []byte, note func(byte, error)) {
	seq := r.bundle.First + uint64(r.count)
	h, ok := scan(rec)
	if !ok {
		full, err := decodeStrict(rec)
		if err != nil {
			note('d', err)
			return
		}
		h = header{seq: full.Seq, kind: []byte(full.Kind), call: []byte(full.Call)}
	}
	if h.seq != seq {
		note('s', nil)
		return
	}
	var kind byte
	switch string(h.kind) {
	case string(KindIntent):
		kind = 'i'
	case string(KindOutcome):
		kind = 'o'
	case string(KindDenied):
		kind = 'd'
	default:
		return
	}
	r.events = append(r.events, event{seq: seq, kind: kind, call: fingerprint(maphash.Bytes(in.seed, h.call))})
}

// subtree is the root of a perfect tree; leaves is kept.
func subtree(leaves []tlog.Hash) tlog.Hash {
	var buf [BundleSize / 2]tlog.Hash
	level := leaves
	for len(level) > 1 {
		for i := range len(level) / 2 {
			buf[i] = tlog.NodeHash(level[2*i], level[2*i+1])
		}
		level = buf[:len(level)/2]
	}
	return level[0]
}
