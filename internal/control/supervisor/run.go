//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/lib/canon"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/principal"
)

// Grace periods of the shutdown.
const (
	loopGrace = 2 * time.Second        // past the elapsed limit, for the loop to end by itself
	sealGrace = 30 * time.Second       // to sign, anchor and verify
	partGrace = 500 * time.Millisecond // for a part that was asked to end
)

// maxDetail bounds why a run ended, in bytes.
const maxDetail = 1 << 10

// run is one run under way.
type run struct {
	s     *Supervisor
	id    string
	goal  string
	emit  Emit
	began time.Time

	mu        sync.Mutex
	totals    pb.Totals
	firstSeq  uint64
	proposals map[uint64]*proposal

	calls sync.WaitGroup // proposals under way
	parts *parts
}

// Run performs one run and returns its last event. An error means that the run
// could not be recorded; everything else, refusals included, is an Ended.
func (s *Supervisor) Run(ctx context.Context, goal string, emit Emit) (*pb.Ended, error) {
	var mu sync.Mutex
	r := &run{
		s: s, id: s.deps.NewID("run"), goal: goal, began: s.deps.Now(), proposals: map[uint64]*proposal{},
	}
	r.emit = func(e *pb.RunEvent) {
		mu.Lock()
		defer mu.Unlock()
		e.At, e.Run = timestamppb.New(s.deps.Now()), r.id
		emit(e)
	}
	if err := r.recordStart(ctx); err != nil {
		return nil, err
	}
	end := r.live(ctx)
	return r.close(ctx, end)
}

// ending is why a run is over.
type ending struct {
	reason endreason.Reason
	detail string
	next   string
	report string
}

// live is the run between its first and its last record.
func (r *run) live(ctx context.Context) ending {
	elapsed := time.Duration(r.s.cfg.Limits.ElapsedMS) * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, elapsed+loopGrace, errElapsed)
	defer cancel()
	// Stopping comes before revoking: a call that was admitted finds the door
	// closed, whatever it holds. Processes end after both, and by nothing else:
	// one that ended by itself can be told from one that was stopped.
	defer func() {
		r.s.deps.Gate.StopRun(r.id)
		r.s.deps.Grants.RevokeRun(r.id)
		r.parts.end()
		r.calls.Wait()
	}()
	if err := r.authorise(); err != nil {
		return failed(err)
	}
	if err := r.start(ctx); err != nil {
		return failed(err)
	}
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Started{Started: r.started()}})
	r.parts.reading = true
	go r.readWire(ctx)
	return r.attend(ctx)
}

var errElapsed = errors.New("elapsed limit")

// authorise opens the run's door, its grants and its budget.
func (r *run) authorise() error {
	r.s.deps.Limits.SetLimit(budget.RunKey(r.id), r.s.cfg.Budget)
	for i, g := range r.s.cfg.Grants {
		g.ID, g.Run = fmt.Sprintf("grant-%d:%s", i+1, g.Resource), r.id
		if err := r.s.deps.Grants.Add(g); err != nil {
			return err
		}
	}
	return r.s.deps.Gate.OpenRun(r.id)
}

// start is the call agent.start of the owner: its effect is the run's processes.
func (r *run) start(ctx context.Context) error {
	args, err := canon.Marshal(map[string]string{"goal_hash": canon.Digest([]byte(r.goal))})
	if err != nil {
		return err
	}
	c, err := call.New(r.s.deps.NewID("call"), call.Subject{Owner: r.s.cfg.Owner, Run: r.id}, call.AgentStart, r.s.cfg.Agent, args, r.s.deps.Now())
	if err != nil {
		return err
	}
	var startErr error
	res, err := r.s.deps.Gate.Do(ctx, c, nil, func(effect context.Context, _ *gate.Permit) gate.Outcome {
		if startErr = r.startParts(effect); startErr == nil {
			return gate.Outcome{Status: call.OK, Facts: r.parts.facts()}
		}
		st := call.Error
		switch { // why the parts went away
		case errors.Is(context.Cause(ctx), errElapsed):
			st, startErr = call.Cancelled, fmt.Errorf("%w: %w", errElapsed, startErr)
		case ctx.Err() != nil:
			st, startErr = call.Cancelled, fmt.Errorf("%w: %w", context.Canceled, startErr)
		case effect.Err() != nil:
			st, startErr = call.Timeout, fmt.Errorf("not ready in time: %w", startErr)
		}
		return gate.Outcome{Status: st, Reason: startErr.Error()}
	})
	if err != nil {
		return err
	}
	r.note(res)
	if startErr != nil {
		return startErr
	}
	if res.Outcome.Status != call.OK {
		return fault.New(fault.Cancelled, "", "start agent %q: %s", r.s.cfg.Agent, res.Outcome.Reason)
	}
	return nil
}

// failed turns an error from before the loop's first turn into an ending.
func failed(err error) ending {
	e := ending{reason: endreason.Internal, detail: err.Error(), next: fault.NextOf(err)}
	var d *gate.Denial
	switch {
	case errors.As(err, &d):
		e.reason, e.next = endreason.Refused, d.Next
	case errors.Is(err, errElapsed):
		e.reason = endreason.LimitElapsed
	case errors.Is(err, context.Canceled), fault.KindOf(err) == fault.Cancelled:
		e.reason = endreason.Cancelled
	case fault.KindOf(err) == fault.Denied:
		e.reason = endreason.Refused
	}
	return e
}

// attend waits for the loop's end, whatever brings it about.
func (r *run) attend(ctx context.Context) ending {
	p := r.parts
	select {
	case <-p.loop.Done():
	case <-p.shim.Done():
		return r.shimEnded()
	case <-p.wireDone: // a shim that nobody hears
		return r.shimEnded()
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errElapsed) {
			return ending{reason: endreason.LimitElapsed, detail: fmt.Sprintf("the loop did not end within %d ms", r.s.cfg.Limits.ElapsedMS)}
		}
		return ending{reason: endreason.Cancelled, detail: "the caller cancelled the run"}
	}
	exit, err := p.loop.Wait(context.Background())
	if err != nil || exit.Signal != 0 {
		return ending{reason: endreason.Crashed, detail: fmt.Sprintf("the loop was ended by signal %d%s", exit.Signal, p.loopText())}
	}
	e := ending{reason: endreason.FromExitCode(exit.Code)}
	if e.reason != endreason.Completed && p.shimGone() {
		return r.shimEnded() // the loop's end is what followed from it
	}
	// The reason is the exit code, which the kernel reports; words are the loop's.
	select {
	case said := <-p.report:
		e.detail, e.report = clip(said.end.Detail, maxDetail), said.text
	case <-time.After(partGrace):
	}
	if e.reason == endreason.Crashed || e.reason == endreason.Internal {
		e.detail += p.loopText()
	}
	return e
}

// shimEnded lets the wire end first, so that calls under way are recorded as
// what they are: cut off by the shim's end, not stopped by us.
func (r *run) shimEnded() ending {
	select {
	case <-r.parts.wireDone:
	case <-time.After(partGrace):
	}
	return ending{reason: endreason.Crashed, detail: "the run's shim ended" + r.parts.shimText(), next: "run `agentos doctor`"}
}

// close writes the last record, seals the log and reports.
func (r *run) close(ctx context.Context, e ending) (*pb.Ended, error) {
	r.mu.Lock()
	r.totals.ElapsedMs = r.s.deps.Now().Sub(r.began).Milliseconds()
	totals := &pb.Totals{
		Iterations: r.totals.Iterations, ToolCalls: r.totals.ToolCalls, Denied: r.totals.Denied,
		InputTokens: r.totals.InputTokens, OutputTokens: r.totals.OutputTokens, ElapsedMs: r.totals.ElapsedMs,
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealGrace)
	defer cancel()
	state := "terminated"
	if e.reason == endreason.Crashed || e.reason == endreason.Internal {
		state = "failed"
	}
	payloads := []audit.Payload{}
	if e.report != "" {
		payloads = append(payloads, audit.Payload{Name: "report", Media: "text/plain", Data: []byte(e.report)})
	}
	rc, err := r.s.deps.Journal.Commit(ctx, gate.Tx{
		Entries: []audit.Entry{r.entry(audit.KindRunEnd, endBody{
			Reason: string(e.reason), Detail: clip(e.detail, maxDetail), Iterations: totals.Iterations, ToolCalls: totals.ToolCalls,
			Denied: totals.Denied, InputTokens: totals.InputTokens, OutputTokens: totals.OutputTokens, ElapsedMS: totals.ElapsedMs,
		}, payloads)},
		Runs: []gate.RunState{r.state(state, string(e.reason))},
	})
	if err != nil {
		return nil, fmt.Errorf("record the end of run %q: %w", r.id, err)
	}
	seal := r.s.deps.Seal(ctx)
	for _, n := range seal.Notices {
		r.notice(n)
	}
	end := &pb.Ended{
		Reason: string(e.reason), Detail: clip(e.detail, maxDetail), Next: e.next, Report: strings.ToValidUTF8(e.report, "\uFFFD"), Totals: totals,
		AuditFirst: r.firstSeq, AuditLast: rc.FirstSeq, Checkpoint: seal.Checkpoint, Verified: seal.Verified,
		ExitCode: int32(e.reason.ExitCode()),
	}
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Ended{Ended: end}})
	return end, nil
}

func (r *run) started() *pb.Started {
	c := r.s.cfg
	id := c.Identities[principal.Agent]
	out := &pb.Started{
		Agent: c.Agent, OwnerUid: c.Owner, AgentUid: id.UID, AgentGid: id.GID,
		Backend: c.Hello.Backend, BackendWhy: c.BackendWhy, PolicyRevision: c.Policy,
		Strength: c.Strength, Mode: "single-run",
		Limits: map[string]int64{
			"iterations": int64(c.Limits.Iterations), "tool_calls": int64(c.Limits.ToolCalls), "elapsed_ms": int64(c.Limits.ElapsedMS),
			"output_tokens": int64(c.Limits.OutputTokens), "total_tokens": int64(c.Limits.TotalTokens), "parallel": int64(c.Limits.Parallel),
		},
	}
	for _, t := range c.Hello.Tools {
		out.Tools = append(out.Tools, t.Name)
	}
	return out
}
