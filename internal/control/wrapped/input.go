//go:build linux

package wrapped

import (
	"context"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/gatewire"
	"agentos/internal/lib/fault"
)

// Input passes one input on to the program. Bytes wait until the program's side
// has room (gatewire.RunWindow); ctx ends the wait. Inputs after the end are
// dropped. Calls of one client must not overlap; those of several may.
func (r *Run) Input(ctx context.Context, in *pb.RunInput) error {
	switch x := in.GetInput().(type) {
	case *pb.RunInput_Stdin:
		return r.stdin(ctx, x.Stdin)
	case *pb.RunInput_StdinEof:
		return r.sendInput(gatewire.RunInput{EOF: true}, nil)
	case *pb.RunInput_Window:
		rows, cols := uint16(x.Window.GetRows()), uint16(x.Window.GetCols())
		if rows == 0 || cols == 0 {
			return nil // a terminal without a size
		}
		return r.sendInput(gatewire.RunInput{Rows: rows, Cols: cols}, nil)
	case *pb.RunInput_Signal:
		return r.sendInput(gatewire.RunInput{Signal: x.Signal}, nil)
	}
	return fault.New(fault.Usage, "send stdin, stdin_eof, window or signal", "input that a running program can't take")
}

func (r *Run) stdin(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), gatewire.MaxRunInput)
		if err := r.reserve(ctx, uint64(n)); err != nil {
			return err
		}
		if err := r.sendInput(gatewire.RunInput{}, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// reserve waits until n more bytes may be on their way.
func (r *Run) reserve(ctx context.Context, n uint64) error {
	for {
		r.mu.Lock()
		if r.sent+n <= gatewire.RunWindow {
			r.sent += n
			r.mu.Unlock()
			return nil
		}
		more := r.more
		r.mu.Unlock()
		select {
		case <-more:
		case <-r.wireDone:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// credit returns what the program's side has taken.
func (r *Run) credit(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent -= min(n, r.sent)
	close(r.more)
	r.more = make(chan struct{})
}

func (r *Run) sendInput(m gatewire.RunInput, blob []byte) error {
	b, err := gatewire.EncodeDown(gatewire.Down{RunInput: &m}, blob)
	if err == nil {
		err = r.wire.Write(b)
	}
	if err != nil && r.ctx.Err() == nil && r.Exited() == nil {
		return fault.Wrap(err, fault.Unavailable, "", "pass on input")
	}
	return nil
}
