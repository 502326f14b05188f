package gate

import (
	"context"
	"fmt"
	"sync"
)

// runs is the set of open runs with the effects that are under way.
type runs struct {
	mu   *sync.Mutex
	open map[string]*openRun
}

type openRun struct {
	next    int
	cancels map[int]context.CancelFunc
}

func newRuns() runs { return runs{mu: &sync.Mutex{}, open: map[string]*openRun{}} }

// OpenRun lets calls of a run through the door. The empty run, for calls of an
// owner in person, is opened like any other.
func (g *Gate) OpenRun(run string) error {
	g.runs.mu.Lock()
	defer g.runs.mu.Unlock()
	if _, dup := g.runs.open[run]; dup {
		return fmt.Errorf("open run %q: already open", run)
	}
	g.runs.open[run] = &openRun{cancels: map[int]context.CancelFunc{}}
	return nil
}

// StopRun closes the door for a run: once it has returned, no new effect of the
// run starts (INV-04), and those under way have been told to end.
func (g *Gate) StopRun(run string) {
	g.runs.mu.Lock()
	defer g.runs.mu.Unlock()
	r, ok := g.runs.open[run]
	if !ok {
		return
	}
	delete(g.runs.open, run)
	for _, cancel := range r.cancels {
		cancel()
	}
}

func (r runs) isOpen(run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.open[run]
	return ok
}

// begin registers an effect if its run is still open; done unregisters it.
func (r runs) begin(run string, cancel context.CancelFunc) (done func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.open[run]
	if !ok {
		return nil, false
	}
	n := o.next
	o.next++
	o.cancels[n] = cancel
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(o.cancels, n)
	}, true
}
