//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
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
	lastSeq   uint64
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
	if err := r.authorise(); err != nil {
		return failed(err)
	}
	// Stopping comes before revoking: a call that was admitted finds the door
	// closed, whatever it holds.
	defer func() {
		r.s.deps.Gate.StopRun(r.id)
		r.s.deps.Grants.RevokeRun(r.id)
		r.parts.end()
		r.calls.Wait()
	}()
	if err := r.start(ctx); err != nil {
		return failed(err)
	}
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Started{Started: r.started()}})
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
		if startErr = r.startParts(ctx, effect); startErr != nil {
			return gate.Outcome{Status: call.Error, Reason: startErr.Error()}
		}
		return gate.Outcome{Status: call.OK, Facts: r.parts.facts()}
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
		return ending{reason: endreason.Crashed, detail: "the run's shim ended: " + p.shimText(), next: "run `agentos doctor`"}
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errElapsed) {
			return ending{reason: endreason.LimitElapsed, detail: fmt.Sprintf("the loop did not end within %d ms", r.s.cfg.Limits.ElapsedMS)}
		}
		return ending{reason: endreason.Cancelled, detail: "the caller cancelled the run"}
	}
	exit, err := p.loop.Wait(context.Background())
	if err != nil || exit.Signal != 0 {
		return ending{reason: endreason.Crashed, detail: fmt.Sprintf("the loop was ended by signal %d: %s", exit.Signal, p.loopText())}
	}
	e := ending{reason: endreason.FromExitCode(exit.Code)}
	// The reason is the exit code, which the kernel reports; words are the loop's.
	select {
	case said := <-p.report:
		e.detail, e.report = said.end.Detail, said.text
	case <-time.After(partGrace):
	}
	if e.reason == endreason.Crashed || e.reason == endreason.Internal {
		e.detail += p.loopText()
	}
	return e
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
			Reason: string(e.reason), Detail: clip(e.detail, 1024), Iterations: totals.Iterations, ToolCalls: totals.ToolCalls,
			Denied: totals.Denied, InputTokens: totals.InputTokens, OutputTokens: totals.OutputTokens, ElapsedMS: totals.ElapsedMs,
		}, payloads)},
		Runs: []gate.RunState{r.state(state, string(e.reason))},
	})
	if err != nil {
		return nil, fmt.Errorf("record the end of run %q: %w", r.id, err)
	}
	seal := r.s.deps.Seal(ctx)
	for _, n := range seal.Notices {
		r.emit(&pb.RunEvent{Event: &pb.RunEvent_Notice{Notice: &pb.Notice{Text: n}}})
	}
	end := &pb.Ended{
		Reason: string(e.reason), Detail: e.detail, Next: e.next, Report: e.report, Totals: totals,
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
