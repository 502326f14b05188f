//go:build linux

package statestore

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/gate"
)

// maxUse bounds one settled amount, so that sums stay integers in SQLite.
const maxUse = 1 << 50

// prepared is a Tx after everything that needs no writer: checked, encoded,
// payloads hashed. It is done in the caller's goroutine.
type prepared struct {
	entries      []preparedEntry
	reservations []preparedReservation
	settlements  []budget.Settlement
	runs         []gate.RunState
	size         int // payload bytes
}

type preparedEntry struct {
	record   audit.Record
	payloads []preparedPayload
}

type preparedPayload struct {
	name, media, commitment string
	dedup, salt, data       []byte
}

type preparedReservation struct {
	call, keys, amount string
}

const nextBug = "report this: a part of agentos asked for a record that the log refuses"

func malformed(err error) error {
	return fault.Wrap(err, fault.Malformed, nextBug, "prepare audit record")
}

func (s *Store) prepareTx(tx gate.Tx) (*prepared, error) {
	if len(tx.Entries) > maxEntries {
		return nil, malformed(fmt.Errorf("%d records in one transaction, limit %d", len(tx.Entries), maxEntries))
	}
	p := &prepared{entries: make([]preparedEntry, 0, len(tx.Entries)), runs: tx.Runs}
	for _, e := range tx.Entries {
		pe, err := s.prepareEntry(e)
		if err != nil {
			return nil, err
		}
		for _, pl := range pe.payloads {
			p.size += len(pl.data)
		}
		p.entries = append(p.entries, pe)
	}
	for _, r := range tx.Runs {
		if r.Run == "" || r.State == "" || len(r.Run) > audit.MaxID || len(r.State) > audit.MaxID || len(r.Reason) > audit.MaxID {
			return nil, malformed(fmt.Errorf("state %.40q of run %.40q", r.State, r.Run))
		}
	}
	for _, c := range tx.Budget {
		if err := p.change(c); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (s *Store) prepareEntry(e audit.Entry) (preparedEntry, error) {
	pe := preparedEntry{payloads: make([]preparedPayload, 0, len(e.Payloads))}
	commitments := make([]string, 0, len(e.Payloads))
	for _, pl := range e.Payloads {
		if err := pl.Check(); err != nil {
			return preparedEntry{}, malformed(err)
		}
		var salt [audit.SaltSize]byte
		if _, err := rand.Read(salt[:]); err != nil {
			return preparedEntry{}, fault.Wrap(err, fault.Internal, "", "draw payload salt")
		}
		c := audit.Commitment(salt, pl.Media, pl.Data)
		commitments = append(commitments, c)
		pe.payloads = append(pe.payloads, preparedPayload{name: pl.Name, media: pl.Media, commitment: c,
			dedup: s.dedup(pl), salt: salt[:], data: pl.Data})
	}
	r, err := audit.NewRecord(e, commitments)
	if err != nil {
		return preparedEntry{}, malformed(err)
	}
	pe.record = r
	return pe, nil
}

// dedup is the keyed index of a payload's content: equal contents are found
// again, and the index alone tells nobody what they are.
func (s *Store) dedup(p audit.Payload) []byte {
	h := hmac.New(sha256.New, s.index)
	fmt.Fprintf(h, "%d %s", len(p.Media), p.Media)
	h.Write(p.Data)
	return h.Sum(nil)
}

func (p *prepared) change(c budget.Change) error {
	switch {
	case c.Reserve != nil && c.Settle == nil:
		r := c.Reserve
		keys, err := json.Marshal(r.Keys)
		if err != nil {
			return malformed(err)
		}
		amount, err := json.Marshal(r.Amount)
		if err != nil {
			return malformed(err)
		}
		if err := checkAmount(r.Call, r.Keys, r.Amount); err != nil {
			return err
		}
		p.reservations = append(p.reservations, preparedReservation{r.Call, string(keys), string(amount)})
	case c.Settle != nil && c.Reserve == nil:
		if err := checkAmount(c.Settle.Call, c.Settle.Keys, c.Settle.Used); err != nil {
			return err
		}
		p.settlements = append(p.settlements, *c.Settle)
	default:
		return malformed(fmt.Errorf("a budget change is one of reserve and settle"))
	}
	return nil
}

func checkAmount(call string, keys []budget.Key, a budget.Amount) error {
	if call == "" || len(call) > audit.MaxID || len(keys) > 16 || len(a) > 16 {
		return malformed(fmt.Errorf("budget change of call %.40q", call))
	}
	for res, n := range a {
		if n < 0 || n > maxUse {
			return malformed(fmt.Errorf("amount %d of %.40q", n, res))
		}
	}
	return nil
}
