package run

import (
	"fmt"
	"os"
	"strings"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"
)

// verdict turns how the session ended into the error of the command.
func (s *session) verdict(err error) error {
	var ended os.Signal
	left := false
	s.set(func() { ended, left = s.ended, s.left })
	switch {
	case s.exited != nil && err != nil:
		return err // agentosd failed after the run: say so
	case s.exited != nil:
		return exitOf(s.exited)
	case left:
		s.quiet = s.e.JSON
		s.say("left; the run goes on, agentos attach " + s.name + " joins it again")
		return nil
	case ended != nil:
		x := &cli.Exit{Code: 128 + number(ended), Kind: string(endreason.Cancelled), Msg: fmt.Sprintf("ended by a signal (%s)", ended)}
		if s.started != nil {
			x.Msg += ", and with it " + s.started.GetRun()
			x.Next = "agentos lineage " + s.started.GetRun() + " shows what was recorded"
		}
		return x
	case err != nil:
		return notRun(err)
	case s.started != nil && s.stream != nil && !s.running && !s.over:
		return nil // detached
	}
	return fault.New(fault.Internal, "agentos ps --all shows what became of it", "the run's stream ended without saying why")
}

// notRun gives the refusal to run a command the code that shells have for it: 127
// when there is no such program, 126 when it can't be executed. The API has kinds
// and no codes of shells; the message says whether it is about the command.
func notRun(err error) error {
	msg := err.Error()
	if !strings.HasPrefix(msg, "find program ") && !strings.HasPrefix(msg, "command: run ") {
		return err
	}
	code := map[fault.Kind]int{fault.NotFound: 127, fault.Denied: 126}[fault.KindOf(err)]
	if code == 0 {
		return err
	}
	return &cli.Exit{Code: code, Kind: string(fault.KindOf(err)), Msg: msg, Next: fault.NextOf(err)}
}

// exitOf is the end of a command as a shell knows it: the command's own code, or
// 128 and the signal. Ends that are not the command's have the code of their
// reason.
func exitOf(x *agentosv1.RunExited) error {
	reason := endreason.Reason(x.GetReason())
	code := int(x.GetCode())
	if x.GetSignal() > 0 {
		code = 128 + int(x.GetSignal())
	}
	switch {
	case reason == endreason.Completed:
	case reason == endreason.Cancelled && code > 0: // stopped: by which signal, or how it took it
	default:
		code = reason.ExitCode()
	}
	if code == 0 {
		return nil
	}
	out := &cli.Exit{Code: code & 0xff, Kind: x.GetReason(), Next: x.GetNext(), Msg: x.GetDetail()}
	if reason != endreason.Completed {
		out.Msg = "run ended: " + x.GetReason()
		if x.GetDetail() != "" {
			out.Msg += ": " + x.GetDetail()
		}
	}
	return out
}
