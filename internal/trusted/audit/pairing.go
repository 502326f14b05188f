package audit

// window is how many calls back a reused call ID is still recognised; it bounds
// the memory of Verify (two generations of calls).
const window = 1 << 20

// pairing checks that every intent has exactly one later outcome (INV-01). A
// denied call is both in one record.
type pairing struct {
	open           map[fingerprint]uint64 // intent's sequence number
	seen, seenPrev map[fingerprint]struct{}
	forgot         bool
}

func newPairing() *pairing {
	return &pairing{open: make(map[fingerprint]uint64), seen: make(map[fingerprint]struct{})}
}

// add returns what is wrong with the event, or nothing. Events come in order.
func (p *pairing) add(e event) string {
	switch e.kind {
	case 'o':
		if _, open := p.open[e.call]; open {
			delete(p.open, e.call)
			return ""
		}
		if p.begin(e.call) {
			return "an outcome without an earlier intent"
		}
		return "a second outcome for one call"
	case 'i':
		if !p.begin(e.call) {
			return "a second intent for one call"
		}
		p.open[e.call] = e.seq
	case 'd':
		if !p.begin(e.call) {
			return "a denial for a call that has a record already"
		}
	}
	return ""
}

// begin remembers the first record of a call; false when it had one. What is
// open may be older than what is remembered.
func (p *pairing) begin(f fingerprint) bool {
	if _, open := p.open[f]; open {
		return false
	}
	if _, old := p.seenPrev[f]; old {
		return false
	}
	if len(p.seen) >= window {
		p.forgot = p.seenPrev != nil
		p.seenPrev, p.seen = p.seen, make(map[fingerprint]struct{})
	}
	n := len(p.seen)
	p.seen[f] = struct{}{} // one look at a big map instead of two
	return len(p.seen) > n
}

// firstOpen is the earliest intent that has no outcome.
func (p *pairing) firstOpen() (seq uint64, ok bool) {
	for _, s := range p.open {
		if !ok || s < seq {
			seq, ok = s, true
		}
	}
	return seq, ok
}
