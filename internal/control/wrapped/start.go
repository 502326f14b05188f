//go:build linux

package wrapped

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/gatewire"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/canon"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/principal"
)

// startTimeout bounds the making of shim and sandbox.
const startTimeout = 30 * time.Second

// Start records the run, passes agent.start through the gate and brings the
// sandbox up. When it returns nil the command runs and a goroutine of the run
// lives until Done. ctx bounds the start only.
func (r *Run) Start(ctx context.Context) error {
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	r.began = r.deps.Now()
	if err := r.recordStart(ctx); err != nil {
		_ = r.deps.Shim.Close()
		if r.cfg.Scratch != "" {
			_ = os.RemoveAll(r.cfg.Scratch)
		}
		close(r.done)
		return err
	}
	err := r.admit(ctx)
	if err != nil {
		r.end(ending{reason: reasonOf(err), detail: err.Error(), next: fault.NextOf(err), code: -1})
		return err
	}
	go r.attend()
	return nil
}

func reasonOf(err error) endreason.Reason {
	var d *gate.Denial
	switch {
	case errors.As(err, &d):
		return endreason.Refused
	case fault.KindOf(err) == fault.Cancelled || errors.Is(err, context.Canceled):
		return endreason.Cancelled
	case fault.KindOf(err) == fault.Internal:
		return endreason.Internal
	}
	return endreason.Refused // the host can't give what was asked for
}

// admit is the call agent.start, whose effect is the sandbox.
func (r *Run) admit(ctx context.Context) error {
	if err := r.deps.Gate.OpenRun(r.ID); err != nil {
		return err
	}
	r.deps.Limits.SetLimit(budget.RunKey(r.ID), budget.Amount{})
	plan, err := canon.Marshal(r.cfg.Plan)
	if err != nil {
		return err
	}
	args, err := canon.Marshal(map[string]string{"goal_hash": canon.Digest(plan)})
	if err != nil {
		return err
	}
	c, err := call.New(r.deps.NewID("call"), call.Subject{Owner: r.cfg.Owner, Run: r.ID}, call.AgentStart, r.cfg.Agent, args, r.deps.Now())
	if err != nil {
		return err
	}
	payload := audit.Payload{Name: "plan", Media: "application/json", Data: plan}
	var failed error
	res, err := r.deps.Gate.Do(ctx, c, []audit.Payload{payload}, func(ctx context.Context, _ *gate.Permit) gate.Outcome {
		if failed = r.bringUp(ctx); failed != nil {
			return gate.Outcome{Status: call.Error, Reason: failed.Error()}
		}
		return gate.Outcome{Status: call.OK, Facts: map[string]any{
			"pid": r.sandbox.Started.PID, "shim_pid": r.shim.PID(), "layers": r.sandbox.Started.Layers, "missing": r.sandbox.Started.Missing,
		}}
	})
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case res.Outcome.Status != call.OK:
		return fault.New(fault.Cancelled, "", "start run: %s", res.Outcome.Reason)
	}
	return nil
}

// bringUp starts the shim, checks it, and has the launcher make the sandbox with
// its lifeline in the shim's hand.
func (r *Run) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := r.startShim(ctx); err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	shimEnd, sandboxEnd, err := fdframe.Pair()
	if err != nil {
		return err
	}
	defer shimEnd.Close()
	defer sandboxEnd.Close()
	hello, err := gatewire.EncodeDown(gatewire.Down{Hello: &gatewire.Hello{Kind: gatewire.KindRun, Run: r.ID, Name: r.cfg.Name, TTY: r.cfg.Plan.TTY}}, nil)
	if err == nil {
		err = r.wire.Write(hello, shimEnd)
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "tell the shim its run")
	}
	go r.readWire()
	if r.sandbox, err = r.deps.Launcher.Launch(ctx, r.cfg.Plan, sandboxEnd); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = "running"
	r.started = &pb.RunStarted{
		Run: r.ID, Agent: r.cfg.Agent, Profile: r.cfg.Profile, Strength: string(r.cfg.Plan.Strength), Layers: r.sandbox.Started.Layers,
		Missing: r.sandbox.Started.Missing, Notices: r.cfg.Notices, Uid: r.cfg.Plan.Identity.UID,
	}
	return nil
}

func (r *Run) startShim(ctx context.Context) error {
	defer r.deps.Shim.Close()
	ours, theirs, err := fdframe.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	c, err := fdframe.Inherited(ours)
	if err != nil {
		return err
	}
	r.wire = fdframe.New(c, gatewire.MaxMessage)
	spec := spawn.Spec{Binary: r.deps.Shim, Argv: []string{"agentos-shim"}, Stdin: theirs}
	if r.cfg.Root {
		spec.UID, spec.GID = r.cfg.Shim.UID, r.cfg.Shim.GID
	}
	if r.shim, err = spawn.Start(r.ctx, spec); err != nil {
		return err
	}
	_ = theirs.Close()
	stop := context.AfterFunc(ctx, func() { _ = r.shim.Kill() })
	defer stop()
	b, files, err := r.wire.Read()
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "run `agentos doctor`", "the shim ended early")
	}
	m, _, err := gatewire.DecodeUp(b)
	if err != nil || m.Ready == nil {
		return errors.Join(errors.New("first message is not ready"), err)
	}
	return r.checkShim()
}

// checkShim compares what the kernel says of the shim with its binding and the
// locks that it must have (OSA-02).
func (r *Run) checkShim() error {
	st, err := r.deps.Status(r.shim.PID())
	if err != nil {
		return fault.Wrap(err, fault.Denied, "run `agentos doctor`", "check the shim's process")
	}
	if err := principal.Verify(r.cfg.Shim, principal.Credentials{UID: st.UID, EUID: st.EUID, GID: st.GID, EGID: st.EGID}); err != nil {
		return err
	}
	if !st.NoNewPrivs || st.Seccomp != 2 || st.CapEff != 0 || st.CapPrm != 0 {
		return fault.New(fault.Denied, "run `agentos doctor`; the run was not started", "the shim's process is not locked")
	}
	return nil
}

// readWire takes the shim's messages until its wire is gone.
func (r *Run) readWire() {
	defer close(r.wireDone)
	drained := false
	for {
		b, files, err := r.wire.Read()
		closeFiles(files)
		if err != nil {
			return
		}
		m, blob, err := gatewire.DecodeUp(b)
		switch {
		case err != nil:
			_ = r.shim.Kill()
			return
		case m.RunTaken != nil:
			r.credit(m.RunTaken.Bytes)
			r.publish(r.ctx, &pb.RunOutput{Output: &pb.RunOutput_Taken{Taken: m.RunTaken.Bytes}})
		case m.RunSignal != nil:
			_ = r.deps.Launcher.Signal(r.ID, m.RunSignal.Signal)
		case m.RunOutput != nil:
			r.output(r.ctx, m.RunOutput.Stream, blob)
		case m.RunClosed != nil && !drained:
			drained = true
			close(r.drained)
		}
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
