package audit

// window is how many calls back a reused call ID is still recognised; it bounds
// the memory of Verify (two generations of closed calls).
const window = 1 << 20

// pairing checks that every intent has exactly one later outcome (INV-01). A
// denied call is both in one record.
type pairing struct {
	open               map[fingerprint]uint64 // intent's sequence number
	closed, closedPrev map[uint64]struct{}
	forgot             bool
}

func newPairing() *pairing {
	return &pairing{open: make(map[fingerprint]uint64), closed: make(map[uint64]struct{})}
}

// add returns what is wrong with the event, or nothing.
func (p *pairing) add(e event) string {
	intent, open := p.open[e.call]
	switch e.kind {
	case 'o':
		if open {
			if intent >= e.seq {
				return "the outcome comes before its intent"
			}
			delete(p.open, e.call)
			p.close(e.call)
			return ""
		}
		if p.wasClosed(e.call) {
			return "a second outcome for one call"
		}
		return "an outcome without an earlier intent"
	case 'i':
		if open || p.wasClosed(e.call) {
			return "a second intent for one call"
		}
		p.open[e.call] = e.seq
	case 'd':
		if open || p.wasClosed(e.call) {
			return "a denial for a call that has a record already"
		}
		p.close(e.call)
	}
	return ""
}

func (p *pairing) wasClosed(f fingerprint) bool {
	if _, ok := p.closed[f[0]]; ok {
		return true
	}
	_, ok := p.closedPrev[f[0]]
	return ok
}

func (p *pairing) close(f fingerprint) {
	if len(p.closed) >= window {
		p.forgot = p.closedPrev != nil
		p.closedPrev, p.closed = p.closed, make(map[uint64]struct{})
	}
	p.closed[f[0]] = struct{}{}
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
