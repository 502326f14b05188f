package loop

import (
	"crypto/sha256"
	"encoding/binary"

	"agentos/internal/lib/chat"
	"agentos/internal/lib/endreason"
)

// When a run counts as stuck. Results are part of every comparison, so polling
// something that changes is progress.
const (
	sameTurns  = 3 // equal turns in a row
	sameCalls  = 4 // the same call with the same result, anywhere in the run
	cycleTurns = 6 // turns that repeat with a period of 2 or more, at least
)

type print [sha256.Size]byte

// progress remembers what was called and what came of it.
type progress struct {
	turns []print
	calls map[print]int
}

// turn records a finished turn and reports whether the run is stuck.
func (p *progress) turn(calls []chat.ToolCall, out []outcome) *ending {
	if p.calls == nil {
		p.calls = map[print]int{}
	}
	var all []byte
	for i, c := range calls {
		f := fingerprint(c.Name, out[i].args, out[i].Text)
		all = append(all, f[:]...)
		if p.calls[f]++; p.calls[f] >= sameCalls {
			return stop(endreason.NoProgress, "tool %q was called %d times with the same arguments and the same result", c.Name, p.calls[f])
		}
	}
	p.turns = append(p.turns, sha256.Sum256(all))
	if n := len(p.turns); p.repeats(1, sameTurns) {
		return stop(endreason.NoProgress, "the last %d turns, up to turn %d, are the same", sameTurns, n)
	}
	for period := 2; 2*period <= len(p.turns); period++ {
		if n := max(cycleTurns, 2*period); p.repeats(period, n) {
			return stop(endreason.Cycle, "the last %d turns repeat a sequence of %d", n, period)
		}
	}
	return nil
}

// repeats reports whether the last n turns have the period.
func (p *progress) repeats(period, n int) bool {
	if len(p.turns) < n {
		return false
	}
	last := p.turns[len(p.turns)-n:]
	for i := period; i < n; i++ {
		if last[i] != last[i-period] {
			return false
		}
	}
	return true
}

// fingerprint hashes name, arguments and result, each with its length.
func fingerprint(name string, args []byte, result string) print {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(name), args, []byte(result)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return print(h.Sum(nil))
}
