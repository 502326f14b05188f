//go:build linux

package statestore

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/gate"
)

// Limits of a group and of one transaction.
const (
	queueLength = 1024
	groupTx     = 512     // transactions that share a flush
	groupBytes  = 8 << 20 // payload bytes that end a group
	maxEntries  = 1024    // records of one Tx
)

// request is one unit of work for the writer.
type request struct {
	tx      *prepared          // a Tx of the journal, or
	do      func(*Store) error // anything else, in a transaction of its own
	claimed atomic.Int32       // queued → taken by the writer, or given up by the caller
	done    chan struct{}      // closed after receipt and err are set
	receipt gate.Receipt
	err     error
}

const (
	queued = iota
	taken
	givenUp
)

// Commit makes tx durable: it returns after the WAL holding it was synced
// (fdatasync, synchronous=FULL). Concurrent commits share a flush and a signed
// checkpoint. A caller that gives up while its Tx still waits gets Cancelled or
// Timeout and the Tx is dropped; once the writer has taken it, Commit waits.
//
// Faults: Malformed (an entry the record format refuses), Conflict (a second
// intent, an outcome without an open intent, a reservation or run used twice):
// that Tx alone is refused. Unavailable (disk full: later commits may succeed).
// Internal (I/O error: the journal is closed for good, as every later error
// says; the Tx may turn up at the next Open, whose recovery then settles it).
// Spec: INV-01, INV-03.
func (s *Store) Commit(ctx context.Context, tx gate.Tx) (gate.Receipt, error) {
	s.callers.Add(1)
	defer s.callers.Add(-1)
	p, err := s.prepareTx(tx)
	if err != nil {
		return gate.Receipt{}, err
	}
	r := &request{tx: p, done: make(chan struct{})}
	if err := s.submit(ctx, r); err != nil {
		return gate.Receipt{}, err
	}
	return r.receipt, nil
}

// submit queues a request and waits for its end.
func (s *Store) submit(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return ctxFault(err, "wait for the journal")
	}
	select {
	case <-s.stopped: // never queue behind a writer that has gone
		return closedFault()
	default:
	}
	select {
	case s.turn <- struct{}{}: // nobody writes: do it here, two wake-ups cheaper
		s.serve(r)
		<-s.turn
		return r.err
	default:
	}
	select {
	case s.reqs <- r:
	case <-s.stopped:
		return closedFault()
	case <-ctx.Done():
		return ctxFault(ctx.Err(), "wait for the journal")
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		if r.claimed.CompareAndSwap(queued, givenUp) {
			return ctxFault(ctx.Err(), "wait for the journal")
		}
	case <-s.stopped:
		if r.claimed.CompareAndSwap(queued, givenUp) {
			return closedFault()
		}
	}
	<-r.done
	return r.err
}

func closedFault() error {
	return fault.New(fault.Unavailable, "start agentos again", "write to the journal: it is closed")
}

// Run lets the journal write until ctx ends, and returns after what was queued
// is durable. One at a time writes: a caller that finds nobody writing does it
// itself, else Run takes all that wait as one group. Call it once.
func (s *Store) Run(ctx context.Context) error {
	<-s.turn // held since Open
	defer func() {
		s.turn <- struct{}{} // for good: nobody writes any more
		close(s.stopped)
	}()
	for {
		select {
		case r := <-s.reqs:
			s.inTurn(r)
		case <-ctx.Done():
			for {
				select {
				case r := <-s.reqs:
					s.inTurn(r)
				default:
					return nil
				}
			}
		}
	}
}

func (s *Store) inTurn(r *request) {
	s.turn <- struct{}{}
	s.serve(r)
	<-s.turn
}

// serve handles a request and whatever can share its flush.
func (s *Store) serve(first *request) {
	if !first.claimed.CompareAndSwap(queued, taken) {
		return
	}
	if first.do != nil {
		s.single(first)
		return
	}
	if s.callers.Load() > 1 {
		// Let callers that the last flush woke queue up: they share this one.
		runtime.Gosched()
	}
	group, size := []*request{first}, first.tx.size
	var other *request
	for other == nil && len(group) < groupTx && size < groupBytes {
		select {
		case r := <-s.reqs:
			switch {
			case !r.claimed.CompareAndSwap(queued, taken):
			case r.do != nil:
				other = r
			default:
				group, size = append(group, r), size+r.tx.size
			}
			continue
		default:
		}
		break
	}
	s.commitGroup(group)
	if other != nil {
		s.single(other)
	}
}

// commitGroup makes the group durable, without those that are refused.
func (s *Store) commitGroup(group []*request) {
	for len(group) > 0 {
		if s.failed != nil {
			finish(group, s.failed)
			return
		}
		w, bad, err := s.transact(group)
		if err == nil {
			s.keep(w, group)
			finish(group, nil)
			return
		}
		if bad >= 0 {
			// Its Tx alone is wrong; nothing of the group is on disk: go again.
			finish(group[bad:bad+1], err)
			group = append(group[:bad:bad], group[bad+1:]...)
			if s.reread() == nil {
				continue
			}
		}
		finish(group, s.afterFailure(err))
		return
	}
}

// afterFailure decides whether the journal can go on. A failed write before the
// commit frame (disk full, refused statement) leaves nothing in the WAL. After
// a failed write or sync of another kind nobody knows what the disk holds, and
// a retry could make a Tx durable that was reported as failed: close for good.
func (s *Store) afterFailure(err error) error {
	err = sqlFault(err, s.cfg.Dir, "write to the journal")
	kind := fault.KindOf(err)
	if (kind == fault.Unavailable || kind == fault.Conflict) && s.reread() == nil {
		return err
	}
	s.failed = fault.Wrap(err, fault.Internal,
		"check the disk (`dmesg`, `df`), then start agentos again: it settles what was open", "write to the journal: it is closed for good")
	return s.failed
}

// single runs one request that is no Tx.
func (s *Store) single(r *request) {
	if r.err = s.failed; r.err == nil {
		r.err = r.do(s)
	}
	close(r.done)
}

func finish(group []*request, err error) {
	for _, r := range group {
		r.err = err
		close(r.done)
	}
}

// inTx runs f in an immediate transaction on the writer's connection.
func (s *Store) inTx(ctx context.Context, f func() error) error {
	if _, err := s.st.begin.ExecContext(ctx); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	err := f()
	if err == nil {
		if _, err = s.st.commit.ExecContext(ctx); err == nil {
			return nil
		}
		err = fmt.Errorf("commit transaction: %w", err)
	}
	// SQLite may have rolled back by itself; reread finds out whether it is over.
	_, _ = s.conn.ExecContext(ctx, "ROLLBACK")
	return err
}
