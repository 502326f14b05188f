//go:build linux

package wrapped

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/launchwire"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/gate"
)

// Grace periods of the end.
const (
	drainGrace = 2 * time.Second // for output that is still on its way
	partGrace  = 500 * time.Millisecond
	sealGrace  = 30 * time.Second
)

// errStopped is the cause of a stop that was asked for.
var errStopped = errors.New("stopped")

// ending is how a run ended.
type ending struct {
	reason       endreason.Reason
	detail, next string
	code, signal int
	cpu, rss     int64
}

// attend waits for the end, whatever brings it about, and closes the run.
func (r *Run) attend() {
	var e ending
	select {
	case x := <-r.sandbox.Exited():
		e = exitOf(x)
		r.mu.Lock()
		if r.stopping {
			e.reason, e.detail = endreason.Cancelled, errStopped.Error()
		}
		r.mu.Unlock()
	case <-r.shim.Done():
		// The lifeline is gone, so the sandbox ends by itself; make sure.
		_ = r.deps.Launcher.Stop(r.ID)
		e = exitOf(<-r.sandbox.Exited())
		e.reason, e.detail, e.next = endreason.Crashed, "the run's shim ended", "run `agentos doctor`"
	case <-r.ctx.Done():
		_ = r.deps.Launcher.Stop(r.ID)
		e = exitOf(<-r.sandbox.Exited())
		e.reason, e.detail = endreason.Cancelled, context.Cause(r.ctx).Error()
	}
	select { // what the program wrote last still has to arrive
	case <-r.drained:
	case <-r.wireDone:
	case <-time.After(drainGrace):
	}
	r.end(e)
}

func exitOf(x launchwire.Exited) ending {
	return ending{reason: endreason.Completed, code: x.Code, signal: x.Signal, cpu: x.CPUMS, rss: x.MaxRSS}
}

// end takes down what is left, writes the last record and tells everybody.
func (r *Run) end(e ending) {
	r.deps.Gate.StopRun(r.ID)
	if r.wire != nil {
		_ = r.wire.Close()
	}
	if r.shim != nil {
		select {
		case <-r.shim.Done():
		case <-time.After(partGrace):
			_ = r.shim.Kill()
			<-r.shim.Done()
		}
	}
	planted := appeared(r.cfg.Watch)
	if len(planted) > 0 {
		r.tell("the program made " + strings.Join(planted, ", ") +
			", from where Git takes instructions: look at it, and remove it before you use the repository")
	}
	r.cancel(errStopped)
	if r.cfg.Scratch != "" {
		// What can't be removed is a leftover in the owner's own state directory.
		_ = os.RemoveAll(r.cfg.Scratch)
	}
	x := &pb.RunExited{
		Code: int32(e.code), Signal: int32(e.signal), Reason: string(e.reason), Detail: e.detail, Next: e.next,
		ElapsedMs: r.deps.Now().Sub(r.began).Milliseconds(), CpuMs: e.cpu, MaxRss: e.rss, AuditFirst: r.firstSeq,
	}
	ctx, cancel := context.WithTimeout(context.Background(), sealGrace)
	defer cancel()
	state := "terminated"
	if e.reason == endreason.Crashed || e.reason == endreason.Internal {
		state = "failed"
	}
	rc, err := r.deps.Journal.Commit(ctx, gate.Tx{
		Entries: []audit.Entry{r.entry(audit.KindRunEnd, map[string]any{
			"reason": e.reason, "detail": clip(e.detail, 1024), "code": e.code, "signal": e.signal,
			"elapsed_ms": x.ElapsedMs, "cpu_ms": e.cpu, "max_rss": e.rss, "planted": planted,
		}, r.outputPayload())},
		Runs: []gate.RunState{{Run: r.ID, Agent: r.cfg.Agent, Owner: r.cfg.Owner, State: state, Reason: string(e.reason)}},
	})
	if err != nil {
		x.Reason, x.Detail, x.Next = string(endreason.Internal), fmt.Sprintf("the end could not be recorded: %v", err), fault.NextOf(err)
	} else {
		x.AuditLast = rc.FirstSeq
		for _, notice := range r.deps.Seal(ctx) {
			r.tell(notice)
		}
	}
	r.mu.Lock()
	r.state = state
	r.mu.Unlock()
	r.finish(x)
	close(r.done)
}

// tellGrace is how long the end of a run waits for a reader that doesn't read.
const tellGrace = 2 * time.Second

// tell gives everybody who is attached a notice, also when the run was stopped:
// its own context is over by then.
func (r *Run) tell(text string) {
	ctx, cancel := context.WithTimeout(context.Background(), tellGrace)
	defer cancel()
	r.publish(ctx, &pb.RunOutput{Output: &pb.RunOutput_Notice{Notice: &pb.Notice{Text: text}}})
}

// appeared lists the watched paths that are there.
func appeared(watch []string) []string {
	var out []string
	for _, p := range watch {
		if _, err := os.Lstat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// outputPayload keeps the last of what the program wrote, for `agentos logs`.
func (r *Run) outputPayload() []audit.Payload {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.tail.bytes()
	if len(b) == 0 {
		return nil
	}
	return []audit.Payload{{Name: "output", Media: "application/octet-stream", Data: b}}
}

// Stop ends the run. With a grace period the program is asked first (SIGTERM);
// after it everything in the sandbox ends at once. It returns when the run's end
// is recorded (INV-04, INV-05).
func (r *Run) Stop(grace time.Duration) {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	if grace > 0 {
		if err := r.deps.Launcher.Signal(r.ID, "TERM"); err == nil {
			select {
			case <-r.done:
				return
			case <-time.After(grace):
			}
		}
	}
	r.cancel(errStopped)
	<-r.done
}

func (r *Run) recordStart(ctx context.Context) error {
	p := r.cfg.Plan
	rc, err := r.deps.Journal.Commit(ctx, gate.Tx{
		Entries: []audit.Entry{r.entry(audit.KindRunStart, map[string]any{
			"backend": "wrapped", "profile": r.cfg.Profile, "name": r.cfg.Name, "policy": r.cfg.Policy, "strength": string(p.Strength),
			"identity": map[string]string{"agent": fmt.Sprintf("%d:%d", p.Identity.UID, p.Identity.GID), "shim": fmt.Sprintf("%d:%d", r.cfg.Shim.UID, r.cfg.Shim.GID)},
			"notices":  r.cfg.Notices,
		}, []audit.Payload{{Name: "goal", Media: "text/plain", Data: []byte(commandLine(p.Command))}})},
		Runs: []gate.RunState{{Run: r.ID, Agent: r.cfg.Agent, Owner: r.cfg.Owner, State: "running"}},
	})
	if err != nil {
		return fmt.Errorf("record the start of run %q: %w", r.ID, err)
	}
	r.firstSeq = rc.FirstSeq
	return nil
}

func (r *Run) entry(k audit.Kind, body any, payloads []audit.Payload) audit.Entry {
	return audit.Entry{Kind: k, At: r.deps.Now().UTC(), Run: r.ID, Agent: r.cfg.Agent, Owner: r.cfg.Owner, Body: body, Payloads: payloads}
}

// commandLine shows an argument vector so that it can be read and typed again.
func commandLine(argv []string) string {
	parts := make([]string, len(argv))
	for i, a := range argv {
		if a != "" && !strings.ContainsAny(a, " \t\n'\"\\$`*?[]{}()<>|&;!#~") {
			parts[i] = a
			continue
		}
		parts[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(parts, " ")
}

func timestamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
