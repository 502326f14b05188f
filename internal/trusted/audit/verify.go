package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/mod/sumdb/note"
)

var errStop = errors.New("verification found a problem")

// Verify recomputes the tree from the records and holds it against every
// stored checkpoint and the ones given. It answers with a report; the error is
// the source's, the context's, or says that a key or checkpoint in opts is no
// good. A log with a problem is read twice. Memory: a few bundles for each worker, the open intents, and at most
// 2·2^20 call fingerprints.
// Spec: INV-11, INV-01.
func Verify(ctx context.Context, src Source, opts Options) (Report, error) {
	v, err := note.NewVerifier(opts.Key)
	if err != nil {
		return Report{}, fmt.Errorf("parse verifier key: %w", err)
	}
	older := make([]Checkpoint, 0, len(opts.Older))
	for i, n := range opts.Older {
		c, err := openCheckpoint(n, v)
		if err != nil {
			return Report{}, fmt.Errorf("open saved checkpoint %d: %w", i+1, err)
		}
		older = append(older, c)
	}
	slices.SortFunc(older, func(a, b Checkpoint) int { return cmp.Compare(a.Size, b.Size) })

	// The newest stored checkpoint proves every record, so in a sound log the
	// signatures of those before it say nothing that their roots don't. Where
	// anything is odd, they tell where the sound part ends: look again with all.
	rep, err := pass(ctx, src, opts, v, older, claim)
	if err != nil || rep.First == nil {
		return rep, err
	}
	return pass(ctx, src, opts, v, older, openCheckpoint)
}

// pass goes over the log once. open reads a stored checkpoint; that of the
// newest one is always verified.
func pass(ctx context.Context, src Source, opts Options, v note.Verifier, older []Checkpoint,
	open func([]byte, note.Verifier) (Checkpoint, error)) (Report, error) {
	in := &inspector{verifier: v, open: open, seed: maphash.MakeSeed()}
	s := &sequence{verifier: v, pair: newPairing(), older: older, report: Report{KeyName: v.Name()}}
	err := pipeline(ctx, src, in, opts.Workers, s.bundle)
	if errors.Is(err, errStop) {
		return s.report, nil
	}
	if err != nil {
		return Report{}, err
	}
	s.finish(opts.Live)
	return s.report, nil
}

// pipeline reads bundles, inspects them on all cores and hands them in order
// to use. Its goroutines have ended when it returns.
func pipeline(ctx context.Context, src Source, in *inspector, workers int, use func(*inspected) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancel(ctx)
	type job struct {
		in  Bundle
		out chan *inspected
	}
	jobs := make(chan job, 4*workers)
	order := make(chan chan *inspected, 8*workers) // bounds what is in flight
	var readErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(order)
		defer close(jobs)
		readErr = src.Bundles(ctx, func(b Bundle) error {
			j := job{in: b, out: make(chan *inspected, 1)}
			select {
			case order <- j.out:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case jobs <- j:
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		})
	})
	for range workers {
		wg.Go(func() {
			for j := range jobs {
				j.out <- in.inspect(j.in)
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for {
		var out chan *inspected
		var more bool
		select {
		case out, more = <-order:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !more {
			return readErr // written before order was closed
		}
		select {
		case r := <-out:
			if err := use(r); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
