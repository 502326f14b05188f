package run

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"

	"connectrpc.com/connect"
)

// window bounds input that the run has not taken, in bytes (RunOutput.taken).
const window = 256 << 10

// piece is the most that is read of standard input at once, in bytes.
const piece = 32 << 10

// bidi is the stream of Start and Attach.
type bidi = *connect.BidiStreamForClient[agentosv1.RunInput, agentosv1.RunOutput]

// session is one program on this process's standard streams.
type session struct {
	e        *cli.Env
	term     *terminal // nil: three streams
	quiet    bool
	attached bool
	name     string // for titles
	out, err *output
	signals  chan os.Signal
	cancel   context.CancelFunc

	sendMu sync.Mutex
	stream bidi

	credit chan struct{} // capacity 1: something was taken
	keys   chan []byte   // what is typed once the run is over

	started *agentosv1.RunStarted // of the receiving goroutine
	exited  *agentosv1.RunExited

	mu      sync.Mutex
	under   int  // bytes of input that were sent and not taken
	running bool // the program has the streams
	over    bool // it had them
	left    bool // an attached session ended, the run goes on
	ended   os.Signal
}

func newSession(e *cli.Env, quiet bool) *session {
	return &session{e: e, quiet: quiet || e.JSON, credit: make(chan struct{}, 1), keys: make(chan []byte, 16)}
}

// own takes over the process's signals and gives a context that only they end.
// done gives the terminal back.
func (s *session) own(parent context.Context) (ctx context.Context, done func()) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(parent))
	if parent.Err() != nil {
		s.cancel() // a signal came before
	}
	signals, stop := listen()
	s.signals = signals
	attended := make(chan struct{})
	go func() { defer close(attended); s.attend(ctx) }()
	return ctx, func() { s.term.restore(); s.cancel(); <-attended; stop() }
}

// set changes the flags; is reads one.
func (s *session) set(change func()) { s.mu.Lock(); defer s.mu.Unlock(); change() }

func (s *session) is(flag *bool) bool { s.mu.Lock(); defer s.mu.Unlock(); return *flag }

// send is safe for concurrent use. What it sends is small or has credit, so it
// does not block for long.
func (s *session) send(in *agentosv1.RunInput) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.stream.Send(in)
}

func (s *session) sendWindow(rows, cols uint32) {
	// An error means that the stream is over, which the receiver sees.
	_ = s.send(&agentosv1.RunInput{Input: &agentosv1.RunInput_Window{Window: &agentosv1.Window{Rows: rows, Cols: cols}}})
}

// relay sends the first message and passes everything on until the run ends, or
// with detach until it runs.
func (s *session) relay(ctx context.Context, st bidi, first *agentosv1.RunInput, detach bool) error {
	s.stream = st
	s.outputs()
	// HTTP/2 looks at a cancelled context only once the request's body has ended.
	unwatch := context.AfterFunc(ctx, func() { _ = st.CloseRequest() })
	defer unwatch()
	defer func() { _ = st.CloseResponse() }() // the end of the stream was seen, or is not wanted
	if err := s.send(first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for s.exited == nil {
		m, err := st.Receive()
		if errors.Is(err, io.EOF) {
			if !detach {
				s.finish(false)
			}
			return nil
		}
		if err == nil && s.e.JSON && m.GetTaken() == 0 {
			err = s.e.PrintJSONLine(m)
		}
		if err == nil {
			err = s.handle(ctx, m, detach)
		}
		if err != nil {
			s.finish(false)
			return err
		}
	}
	s.finish(true)
	return nil
}

func (s *session) handle(ctx context.Context, m *agentosv1.RunOutput, detach bool) error {
	switch x := m.GetOutput().(type) {
	case *agentosv1.RunOutput_Started:
		if s.started != nil {
			return nil
		}
		s.started = x.Started
		s.announce(detach)
		if detach {
			return nil
		}
		return s.begin(ctx)
	case *agentosv1.RunOutput_Stdout:
		return s.out.write(x.Stdout)
	case *agentosv1.RunOutput_Stderr:
		return s.err.write(x.Stderr)
	case *agentosv1.RunOutput_Notice:
		s.say("note: " + x.Notice.GetText())
	case *agentosv1.RunOutput_Taken:
		s.took(x.Taken)
	case *agentosv1.RunOutput_Exited:
		s.exited = x.Exited
	}
	return nil
}

// begin puts the program on this process's streams.
func (s *session) begin(ctx context.Context) error {
	if s.term != nil {
		if err := s.term.raw(); err != nil {
			return err
		}
		rows, cols := s.term.size()
		if s.attached { // a change of size makes it draw itself anew
			s.sendWindow(max(rows-1, 1), cols)
		}
		s.sendWindow(rows, cols) // it may have changed since the spec
	}
	s.set(func() { s.running = true })
	go s.input(ctx)
	return nil
}

// input passes standard input on, as fast as it is taken. It can't be stopped
// while it waits for a key, and ends with the process.
func (s *session) input(ctx context.Context) {
	done := false
	defer s.term.guard(&done)
	for {
		b := make([]byte, piece)
		n, err := s.e.In.Read(b)
		switch {
		case n == 0:
		case s.is(&s.over):
			select {
			case s.keys <- b[:n]:
			default:
			}
		case s.reserve(ctx, n):
			_ = s.send(&agentosv1.RunInput{Input: &agentosv1.RunInput_Stdin{Stdin: b[:n]}}) // the receiver sees a stream that ended
		}
		if err != nil || ctx.Err() != nil {
			if ctx.Err() == nil && !s.attached && !s.is(&s.over) {
				_ = s.send(&agentosv1.RunInput{Input: &agentosv1.RunInput_StdinEof{StdinEof: true}})
			}
			break
		}
	}
	done = true
}

// reserve waits until n more bytes may be under way.
func (s *session) reserve(ctx context.Context, n int) bool {
	for {
		s.mu.Lock()
		ok := s.under+n <= window
		if ok {
			s.under += n
		}
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-s.credit:
		case <-ctx.Done():
			return false
		}
	}
}

func (s *session) took(n uint64) {
	s.set(func() { s.under -= int(min(n, uint64(s.under))) }) // what another client sent counts too
	select {
	case s.credit <- struct{}{}:
	default:
	}
}
