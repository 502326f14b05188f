package run

import (
	"context"
	"os"

	"agentos/internal/api/agentosv1"
)

// impatient is how many signals end a run at once, whatever it does with them.
const impatient = 3

// attend acts on signals until the session ends. Nobody else does.
func (s *session) attend(ctx context.Context) {
	done := false
	defer s.term.guard(&done)
	count := 0
	for {
		select {
		case <-ctx.Done():
			done = true
			return
		case sig := <-s.signals:
			count = s.signal(sig, count)
		}
	}
}

// signal handles one. count is how many were passed on in a row.
func (s *session) signal(sig os.Signal, count int) int {
	name := names()[sig]
	running := s.is(&s.running)
	switch {
	case isWindow(sig):
		if running && s.term != nil {
			s.sendWindow(s.term.size())
		}
	case isStop(sig): // from outside: a key would have reached the program
		s.term.restore()
		stopSelf()
	case isContinue(sig):
		if running && s.term != nil && s.term.raw() == nil {
			s.sendWindow(s.term.size())
		}
	case !running:
		s.end(sig)
	case s.attached && (name == "TERM" || name == "HUP" || name == "INT" && s.term == nil):
		if s.is(&s.left) {
			s.end(nil) // no answer to the first
			break
		}
		s.set(func() { s.left = true })
		_ = s.send(&agentosv1.RunInput{Input: &agentosv1.RunInput_Detach{Detach: true}}) // closing the stream says the same
	case s.term != nil && (name == "TERM" || name == "HUP"):
		s.end(sig)
	case name == "USR1" || name == "USR2":
		s.pass(name)
	default:
		if count++; count >= impatient {
			s.end(sig)
			break
		}
		s.pass(name)
	}
	return count
}

func (s *session) pass(name string) {
	_ = s.send(&agentosv1.RunInput{Input: &agentosv1.RunInput_Signal{Signal: name}}) // the receiver sees a stream that ended
}

// end ends the session, by a signal or because it was left.
func (s *session) end(sig os.Signal) {
	s.set(func() { s.ended = sig })
	s.term.restore()
	s.cancel()
}
