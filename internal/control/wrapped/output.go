//go:build linux

package wrapped

import (
	"context"

	pb "agentos/internal/api/agentosv1"
)

// Subscriber receives a run's output from the moment it joined. It must keep
// reading: the run's program is held back by its slowest reader, as by a
// terminal.
type Subscriber struct {
	C    <-chan *pb.RunOutput // closed after the last one
	c    chan *pb.RunOutput
	gone chan struct{}
}

// Subscribe joins; replay adds the kept tail of the output first. leave must be
// called.
func (r *Run) Subscribe(replay bool) (s *Subscriber, leave func()) {
	c := make(chan *pb.RunOutput, 64)
	s = &Subscriber{C: c, c: c, gone: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.tail.bytes(); replay && len(b) > 0 {
		for len(b) > 0 {
			n := min(len(b), 16<<10)
			c <- &pb.RunOutput{Output: &pb.RunOutput_Stdout{Stdout: b[:n]}}
			b = b[n:]
		}
	}
	if r.exited != nil {
		c <- &pb.RunOutput{Output: &pb.RunOutput_Exited{Exited: r.exited}}
		close(c)
		return s, func() {}
	}
	id := r.nextSub
	r.nextSub++
	r.subs[id] = s
	return s, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.subs[id]; ok {
			delete(r.subs, id)
			close(s.gone)
		}
	}
}

// publish hands o to everybody who is attached and waits for room; nobody
// attached costs nothing.
func (r *Run) publish(ctx context.Context, o *pb.RunOutput) {
	r.mu.Lock()
	subs := make([]*Subscriber, 0, len(r.subs))
	for _, s := range r.subs {
		subs = append(subs, s)
	}
	r.mu.Unlock()
	for _, s := range subs {
		select {
		case s.c <- o:
		case <-s.gone:
		case <-ctx.Done():
		}
	}
}

// output keeps and publishes bytes of the program.
func (r *Run) output(ctx context.Context, stream uint8, b []byte) {
	r.mu.Lock()
	r.tail.write(b)
	r.mu.Unlock()
	o := &pb.RunOutput{Output: &pb.RunOutput_Stdout{Stdout: b}}
	if stream == 2 {
		o = &pb.RunOutput{Output: &pb.RunOutput_Stderr{Stderr: b}}
	}
	r.publish(ctx, o)
}

// finish publishes the end and closes every subscriber.
func (r *Run) finish(e *pb.RunExited) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exited = e
	for id, s := range r.subs {
		delete(r.subs, id)
		select {
		case s.c <- &pb.RunOutput{Output: &pb.RunOutput_Exited{Exited: e}}:
		default:
			// A reader that is this far behind finds the end by Exited.
		}
		close(s.c)
	}
}

// ring keeps the newest bytes.
type ring struct {
	b   []byte
	max int
}

func newRing(max int) *ring { return &ring{max: max} }

func (r *ring) write(p []byte) {
	r.b = append(r.b, p...)
	if len(r.b) > 2*r.max {
		r.b = append(r.b[:0], r.b[len(r.b)-r.max:]...)
	}
}

func (r *ring) bytes() []byte {
	b := r.b
	if len(b) > r.max {
		b = b[len(b)-r.max:]
	}
	return append([]byte(nil), b...)
}
