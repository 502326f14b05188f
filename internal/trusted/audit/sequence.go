package audit

import (
	"fmt"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// sequence takes inspected bundles in order and finds the first bad record.
type sequence struct {
	bundles  Frontier // roots of full bundles
	total    uint64
	good     uint64 // size of the newest stored checkpoint that holds
	proven   uint64 // size of the newest saved checkpoint that holds
	newest   uint64 // size of the newest stored checkpoint, also beyond the end
	older    []Checkpoint
	notes    []SizedNote // stored checkpoints of the last bundle that has any
	verifier note.Verifier
	pair     *pairing
	report   Report
}

const (
	nextRestore = "keep this state directory as evidence, restore a backup that verifies, and find out who could write to it"
	nextOlder   = "keep this state directory as evidence; verify against older saved checkpoints to narrow down where it was rewritten"
	nextReopen  = "start agentos once on this state directory: it records what a crash left open; then verify again"
	nextReport  = "the writer broke its own format: report it with this record"
)

func (s *sequence) fail(seq uint64, k ProblemKind, next, format string, args ...any) error {
	s.report.Records = s.total
	s.report.Checkpoint = s.good
	s.report.First = &Problem{Seq: seq, Kind: k, Detail: fmt.Sprintf(format, args...), Next: next}
	return errStop
}

func (s *sequence) bundle(r *inspected) error {
	first := r.bundle.First
	if first != s.total {
		return s.fail(s.total, Missing, nextRestore, "records %d to %d are not in the log", s.total, max(first, s.total+1)-1)
	}
	for _, n := range r.bundle.Notes {
		s.newest = max(s.newest, n.Size)
	}
	if len(r.bundle.Notes) > 0 {
		s.notes = r.bundle.Notes
	}
	if r.odd != nil && r.odd.what == 'f' {
		return s.fail(first+uint64(r.odd.index), Altered, nextRestore, "record %d: %v", first+uint64(r.odd.index), r.odd.err)
	}
	end := first + uint64(r.count)
	if err := s.checkpoints(r); err != nil {
		return err
	}
	if r.odd != nil {
		return s.explain(r, s.good >= end)
	}
	if r.badNote != nil {
		seq := s.good
		if n := r.badNote.Size; n > 0 && s.good >= n {
			seq = n - 1
		}
		return s.fail(seq, Signature, nextRestore, "the stored checkpoint of size %d is no checkpoint of this log and key: %v", r.badNote.Size, r.noteErr)
	}
	if err := s.saved(r); err != nil {
		return err
	}
	for _, e := range r.events {
		if what := s.pair.add(e); what != "" {
			s.total = e.seq
			return s.fail(e.seq, Pairing, nextReport, "record %d is %s", e.seq, what)
		}
		switch e.kind {
		case 'i':
			s.report.Intents++
		case 'o':
			s.report.Outcomes++
		default:
			s.report.Denied++
		}
	}
	return s.advance(r, end)
}

// advance accepts the bundle.
func (s *sequence) advance(r *inspected, end uint64) error {
	if r.count > 0 {
		last, err := Decode(r.last)
		if err != nil {
			return s.fail(end-1, Format, nextReport, "record %d: %v", end-1, err)
		}
		s.report.At = last.At
	}
	s.total = end
	if r.count == BundleSize {
		s.bundles.Push(r.root)
		s.report.Root = s.bundles.Root(nil)
		return nil
	}
	var tail Frontier
	for _, h := range r.leaves {
		tail.Push(h)
	}
	s.report.Root = s.bundles.Root(&tail)
	return nil
}

// rootsAt calls yield with each checkpoint up to end and the root that leaves
// give at its size; checkpoints ascend.
func (s *sequence) rootsAt(r *inspected, leaves []tlog.Hash, cs []Checkpoint, yield func(Checkpoint, tlog.Hash) error) error {
	first := r.bundle.First
	var tail Frontier
	for _, c := range cs {
		if c.Size < first || c.Size > first+uint64(len(leaves)) {
			continue
		}
		n := int(c.Size - first)
		if n == BundleSize && len(r.leaves) == BundleSize && &leaves[0] == &r.leaves[0] {
			full := s.bundles.Clone()
			full.Push(r.root)
			if err := yield(c, full.Root(nil)); err != nil {
				return err
			}
			continue
		}
		for tail.Len() < uint64(n) {
			tail.Push(leaves[tail.Len()])
		}
		var root tlog.Hash
		if n == BundleSize {
			full := s.bundles.Clone()
			full.Push(tail.Peaks()[0])
			root = full.Root(nil)
		} else {
			root = s.bundles.Root(&tail)
		}
		if err := yield(c, root); err != nil {
			return err
		}
	}
	return nil
}

// checkpoints holds the bundle against the stored checkpoints.
func (s *sequence) checkpoints(r *inspected) error {
	return s.rootsAt(r, r.leaves, r.signed, func(c Checkpoint, root tlog.Hash) error {
		if root == c.Root {
			s.good = max(s.good, c.Size)
			return nil
		}
		if r.odd != nil && (s.indexHolds(r, c) || r.odd.what != 'l') {
			return s.explain(r, false)
		}
		return s.fail(s.good, Rewritten, nextRestore,
			"records %d to %d and their hashes are not those that the stored checkpoint of size %d signed", s.good, c.Size-1, c.Size)
	})
}

// indexHolds reports whether the stored leaf hashes are the ones signed: then a
// record that differs from its leaf hash is the altered one.
func (s *sequence) indexHolds(r *inspected, c Checkpoint) bool {
	stored := make([]tlog.Hash, 0, BundleSize)
	for b := r.bundle.Leaves; len(b) >= tlog.HashSize && len(stored) < BundleSize; b = b[tlog.HashSize:] {
		stored = append(stored, tlog.Hash(b[:tlog.HashSize]))
	}
	holds := false
	_ = s.rootsAt(r, stored, []Checkpoint{c}, func(c Checkpoint, root tlog.Hash) error {
		holds = root == c.Root
		return nil
	})
	return holds
}

// saved holds the bundle against the checkpoints that the user kept.
func (s *sequence) saved(r *inspected) error {
	return s.rootsAt(r, r.leaves, s.older, func(c Checkpoint, root tlog.Hash) error {
		if root == c.Root {
			s.proven = max(s.proven, c.Size)
			return nil
		}
		if s.good < c.Size {
			from := max(s.proven, s.good)
			return s.fail(from, Rewritten, nextRestore,
				"records %d to %d are not those that the saved checkpoint of size %d proves, and no stored checkpoint covers them", from, c.Size-1, c.Size)
		}
		return s.fail(s.proven, Rewritten, nextOlder,
			"the log was signed again: among records %d to %d at least one is not what the saved checkpoint of size %d proves", s.proven, c.Size-1, c.Size)
	})
}

// explain turns the first odd thing in a bundle into a problem. signed says
// that a checkpoint proves these very records.
func (s *sequence) explain(r *inspected, signed bool) error {
	i := r.odd.index
	seq := r.bundle.First + uint64(i)
	if i >= r.count {
		return s.fail(seq, Missing, nextRestore, "record %d was cut off; its hash is still there", seq)
	}
	if signed {
		switch r.odd.what {
		case 'l', 'n':
			return s.fail(seq, Format, nextRestore, "the stored hash of record %d is damaged; the record itself is proven by a checkpoint", seq)
		case 's':
			return s.fail(seq, Reordered, nextReport, "the record signed at place %d carries another sequence number", seq)
		}
		return s.fail(seq, Format, nextReport, "record %d: %v", seq, r.odd.err)
	}
	got, next, elsewhere := places(r, i)
	switch {
	case got < 0:
		return s.fail(seq, Altered, nextRestore, "record %d does not have the bytes that were hashed and signed: %v", seq, r.odd.err)
	case uint64(got) == seq:
		return s.fail(seq, Altered, nextRestore, "record %d does not have the bytes that were hashed and signed", seq)
	case uint64(got) > seq && !elsewhere && next != int64(seq)+1:
		return s.fail(seq, Missing, nextRestore, "record %d is not in the log; record %d stands in its place", seq, got)
	}
	return s.fail(seq, Reordered, nextRestore, "record %d stands in the place of record %d", got, seq)
}

// places reads the sequence numbers around index i: that of i itself and of the
// one after it (-1: unreadable or none), and whether the expected number of i
// occurs elsewhere in the bundle.
func places(r *inspected, i int) (got, next int64, elsewhere bool) {
	got, next = -1, -1
	want := int64(r.bundle.First) + int64(i)
	_ = Frames(r.bundle.Data, func(j int, rec []byte, _ tlog.Hash) bool {
		n := int64(-1)
		if d, err := Decode(rec); err == nil {
			n = int64(d.Seq)
		}
		switch {
		case j == i:
			got = n
		case j == i+1:
			next = n
		}
		if j != i && n == want {
			elsewhere = true
		}
		return true
	})
	return got, next, elsewhere
}

// finish looks at the end of the log.
func (s *sequence) finish(live bool) {
	newest := s.newest
	for _, c := range s.older {
		newest = max(newest, c.Size)
	}
	switch {
	case newest > s.total:
		_ = s.fail(s.total, Missing, nextRestore, "the log ends with %d records, but a signed checkpoint proves %d", s.total, newest)
		return
	case s.good < s.total || s.newest == 0:
		_ = s.fail(s.good, Signature, nextRestore, "no stored checkpoint covers the records from %d on", s.good)
		return
	case !s.signed():
		_ = s.fail(s.total, Signature, nextRestore, "the stored checkpoint of size %d is not signed by the key of this log", s.good)
		return
	}
	s.report.Records, s.report.Checkpoint = s.total, s.good
	if seq, open := s.pair.firstOpen(); open {
		if !live {
			_ = s.fail(seq, Pairing, nextReopen, "the intent in record %d has no outcome", seq)
			return
		}
		s.report.Open = uint64(len(s.pair.open))
		s.report.Notes = append(s.report.Notes, fmt.Sprintf("%d calls have no outcome yet; the first is record %d", s.report.Open, seq))
	}
	if s.pair.forgot {
		s.report.Notes = append(s.report.Notes, fmt.Sprintf("call IDs used again more than %d calls later were not looked for", window))
	}
}

// signed reports whether the newest stored checkpoint, which proves all
// records, is signed by the key. Those before it may only have been read.
func (s *sequence) signed() bool {
	for _, n := range s.notes {
		if n.Size == s.good {
			_, err := openCheckpoint(n.Note, s.verifier)
			return err == nil
		}
	}
	return false
}
