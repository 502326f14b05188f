package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// maxGoal bounds a goal in bytes, as the API does.
const maxGoal = 64 << 10

func once(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "once GOAL", Short: "Run the agent once on a goal",
		Long: `Run the agent once on a goal and show what it does: each call, which rule allowed
it or which stage refused it, then its report and the record of the run.

GOAL is one argument; - reads it from standard input. The first Ctrl-C cancels the
run, which is recorded; the second ends everything at once. With --json, each
event is one line of JSON. The exit code says how the run ended: agentos help
exit-codes.`,
		Example: `  agentos agent once "inspect this machine"
  agentos agent once "is ssh.service healthy?" --set tools.service_allowlist=ssh.service
  agentos agent once --backend socket --model-socket /run/llama/model.sock "what changed today?"
  agentos agent once --json - < goal.txt | jq -r 'select(.ended).ended.report'`,
		Args: cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			goal, err := readGoal(e.In, args[0])
			if err != nil {
				return err
			}
			return run(c.Context(), e, goal)
		},
	}
}

func readGoal(in io.Reader, arg string) (string, error) {
	const next = `write a goal, such as agentos agent once "inspect this machine"`
	goal := arg
	if arg == "-" {
		data, err := io.ReadAll(io.LimitReader(in, maxGoal+1))
		if err != nil {
			return "", fault.Wrap(err, fault.Unavailable, "give the goal as an argument", "read goal from standard input")
		}
		goal = string(data)
	}
	switch {
	case len(goal) > maxGoal:
		return "", fault.New(fault.Limit, "shorten it to 64 KiB", "read goal: too long")
	case !utf8.ValidString(goal):
		return "", fault.New(fault.Malformed, "write it in UTF-8", "read goal: not UTF-8")
	case strings.TrimSpace(goal) == "":
		return "", fault.New(fault.Usage, next, "read goal: it is empty")
	}
	return strings.TrimSpace(goal), nil
}

// view shows the events of one run.
type view interface {
	event(*agentosv1.RunEvent) error
	tick(time.Time) // animation; called only between events
	done()          // leaves the cursor on a fresh line
}

func run(ctx context.Context, e *cli.Env, goal string) error {
	var v view = &plain{env: e}
	switch {
	case e.JSON:
		v = &jsonLines{env: e}
	case e.Live():
		v = &live{plain: plain{env: e}}
	}
	w := watcher{view: v}
	err := e.With(ctx, func(s *client.Session) error {
		defer func() {
			// Hanging up waits until the run is recorded, which may take a while.
			if ctx.Err() != nil && e.ErrTerm && !e.JSON {
				fmt.Fprintln(e.Err, "\ncancelling; Ctrl-C again ends everything at once")
			}
		}()
		sctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := s.Agent.Once(sctx, connect.NewRequest(&agentosv1.OnceRequest{Goal: goal}))
		if err != nil {
			return err
		}
		defer stream.Close()
		return w.watch(ctx, stream, cancel)
	})
	return w.verdict(ctx, err)
}

// watcher reads the stream of one run.
type watcher struct {
	view  view
	runID string
	ended *agentosv1.Ended
}

// watch shows events until the stream or ctx ends; cancel ends the stream.
// Nothing else writes meanwhile.
func (w *watcher) watch(ctx context.Context, stream *connect.ServerStreamForClient[agentosv1.RunEvent], cancel func()) error {
	events := make(chan *agentosv1.RunEvent)
	var failed error
	go func() {
		defer close(events)
		for stream.Receive() {
			events <- stream.Msg()
		}
		failed = stream.Err()
	}()
	defer func() {
		cancel()
		for range events { // until the reader is gone
		}
		w.view.done()
	}()
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return failed
			}
			if ev.GetRun() != "" {
				w.runID = ev.GetRun()
			}
			if x := ev.GetEnded(); x != nil {
				w.ended = x
			}
			if err := w.view.event(ev); err != nil {
				return err
			}
		case now := <-beat.C:
			w.view.tick(now)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// verdict turns how the stream ended into the error of the command.
func (w *watcher) verdict(ctx context.Context, err error) error {
	why := "agentos audit log --tail 20 shows what was recorded"
	if w.runID != "" {
		why = "agentos lineage " + w.runID + " shows how far it came"
	}
	switch {
	case w.ended != nil:
		if err != nil {
			return err // agentosd failed after the run: say so
		}
		return ending(w.ended)
	case ctx.Err() != nil:
		msg := "run cancelled"
		if err != nil && fault.KindOf(err) != fault.Cancelled && !errors.Is(err, context.Canceled) {
			msg += ", and agentosd did not end well: " + err.Error()
		}
		return &cli.Exit{Code: endreason.Cancelled.ExitCode(), Kind: string(endreason.Cancelled), Msg: msg, Next: why}
	case err != nil:
		return err
	}
	return fault.New(fault.Internal, why, "run ended without saying why")
}

// ending is nil for a completed run.
func ending(x *agentosv1.Ended) error {
	r := endreason.Reason(x.GetReason())
	if r == endreason.Completed {
		return nil
	}
	msg := "run ended: " + x.GetReason()
	if x.GetDetail() != "" {
		msg += ": " + x.GetDetail()
	}
	return &cli.Exit{Code: r.ExitCode(), Kind: x.GetReason(), Msg: msg, Next: x.GetNext()}
}
