//go:build linux

// Package runapi is RunService: it starts wrapped runs, relays between a client
// and a run, and answers what runs there are.
//
// State owned: the table of runs that live in this process. Imports: api/
// {agentosv1,apierr}, control/{statestore,wrapped}, lib/fault. Imported by:
// control/daemon. Locks: Table.mu, a leaf. Invariants: an owner sees only their
// own runs; a run that was not detached ends with its client.
// Tests: runapi_test.go; integration/run on the built binaries.
package runapi

import (
	"context"
	"errors"
	"io"
	"sort"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/apierr"
	"agentos/internal/control/statestore"
	"agentos/internal/control/wrapped"
	"agentos/internal/lib/fault"
)

// Table is the runs of one process. Safe for concurrent use.
type Table struct {
	mu   sync.Mutex
	runs map[string]*wrapped.Run
	wg   sync.WaitGroup
}

// NewTable is empty.
func NewTable() *Table { return &Table{runs: map[string]*wrapped.Run{}} }

// add keeps a run until it has ended.
func (t *Table) add(r *wrapped.Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs[r.ID] = r
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		<-r.Done()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.runs, r.ID)
	}()
}

// StopAll ends every run at once and waits until their ends are recorded.
func (t *Table) StopAll() {
	for _, r := range t.list(nil) {
		go r.Stop(0)
	}
	t.wg.Wait()
}

// Wait returns when no run lives, or with ctx.
func (t *Table) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { t.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Live is how many runs live.
func (t *Table) Live() int { t.mu.Lock(); defer t.mu.Unlock(); return len(t.runs) }

func (t *Table) list(owner *uint32) []*wrapped.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*wrapped.Run
	for _, r := range t.runs {
		if owner == nil || r.Owner() == *owner {
			out = append(out, r)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// find resolves a run's ID, a unique prefix of it, or its name.
func (t *Table) find(owner uint32, ref string) (*wrapped.Run, error) {
	var hits []*wrapped.Run
	for _, r := range t.list(&owner) {
		if r.ID == ref || r.Summary().GetName() == ref {
			return r, nil
		}
		if ref != "" && (strings.HasPrefix(r.ID, ref) || strings.HasPrefix(r.ID, "run-"+ref)) {
			hits = append(hits, r)
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return nil, fault.New(fault.NotFound, "`agentos ps` lists the runs that go on, `agentos ps --all` those that ended", "no run %.80q goes on", ref)
	}
	ids := make([]string, len(hits))
	for i, r := range hits {
		ids[i] = r.ID
	}
	return nil, fault.New(fault.Usage, "give more of the run's ID", "%.80q could be %s", ref, strings.Join(ids, ", "))
}

// Deps is all that the handlers may touch.
type Deps struct {
	Table *Table
	Owner uint32
	// Make plans a run from a spec; it starts nothing.
	Make func(ctx context.Context, spec *pb.RunSpec) (*wrapped.Run, error)
	// Plan shows what Make would plan.
	Plan     func(ctx context.Context, spec *pb.RunSpec) (*pb.RunPlan, error)
	Profiles func() (*pb.ProfilesResponse, error)
	Reader   func(ctx context.Context, use func(*statestore.Reader) error) error
}

// Service implements RunService.
type Service struct{ deps Deps }

// New starts nothing.
func New(d Deps) *Service { return &Service{d} }

// stream is what Start and Attach have in common.
type stream = connect.BidiStream[pb.RunInput, pb.RunOutput]

// Start begins a run and relays until it ends or, detached, until it runs.
func (s *Service) Start(ctx context.Context, st *stream) error {
	first, err := st.Receive()
	if err != nil || first.GetSpec() == nil {
		return apierr.ToConnect(fault.New(fault.Usage, "send the spec first", "the first input is no spec"))
	}
	spec := first.GetSpec()
	r, err := s.deps.Make(ctx, spec)
	if err != nil {
		return apierr.ToConnect(err)
	}
	sub, leave := r.Subscribe(false)
	defer leave()
	if err := r.Start(ctx); err != nil {
		return apierr.ToConnect(err)
	}
	s.deps.Table.add(r)
	if err := st.Send(&pb.RunOutput{Output: &pb.RunOutput_Started{Started: r.Started()}}); err != nil || spec.GetDetach() {
		if !spec.GetDetach() {
			r.Stop(0)
		}
		return apierr.ToConnect(err)
	}
	if detached := s.relay(ctx, st, r, sub); !detached {
		r.Stop(0) // no-op when it has ended
	}
	return nil
}

// Attach joins a run: first the kept tail of its output, then what comes.
func (s *Service) Attach(ctx context.Context, st *stream) error {
	first, err := st.Receive()
	if err != nil {
		return apierr.ToConnect(fault.New(fault.Usage, "name the run first", "the first input names no run"))
	}
	r, err := s.deps.Table.find(s.deps.Owner, first.GetAttach())
	if err != nil {
		return apierr.ToConnect(err)
	}
	sub, leave := r.Subscribe(true)
	defer leave()
	if err := st.Send(&pb.RunOutput{Output: &pb.RunOutput_Started{Started: r.Started()}}); err != nil {
		return err
	}
	s.relay(ctx, st, r, sub)
	return nil
}

// relay passes input in and output out. It returns true when the client asked
// to leave, false when the run ended or the client is gone.
func (s *Service) relay(ctx context.Context, st *stream, r *wrapped.Run, sub *wrapped.Subscriber) (detached bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := make(chan bool, 1)
	go func() {
		for {
			in, err := st.Receive()
			if err != nil {
				// The end of the client's half is not the end of the client.
				if !errors.Is(err, io.EOF) {
					left <- false
				}
				return
			}
			if in.GetDetach() {
				left <- true
				return
			}
			// What can't be passed on is dropped: the program is about to end, and
			// how it ended is what the client waits for.
			_ = r.Input(ctx, in)
		}
	}()
	for {
		select {
		case o, open := <-sub.C:
			if !open {
				if x := r.Exited(); x != nil {
					_ = st.Send(&pb.RunOutput{Output: &pb.RunOutput_Exited{Exited: x}})
				}
				return false
			}
			if st.Send(o) != nil {
				return false
			}
			if o.GetExited() != nil {
				return false
			}
		case d := <-left:
			return d
		case <-ctx.Done():
			return false
		}
	}
}

// List shows the owner's runs that go on and, with all, those that ended.
func (s *Service) List(ctx context.Context, req *connect.Request[pb.RunListRequest]) (*connect.Response[pb.RunListResponse], error) {
	out := &pb.RunListResponse{}
	live := map[string]bool{}
	for _, r := range s.deps.Table.list(&s.deps.Owner) {
		out.Runs = append(out.Runs, r.Summary())
		live[r.ID] = true
	}
	if !req.Msg.GetAll() {
		return connect.NewResponse(out), nil
	}
	err := s.deps.Reader(ctx, func(r *statestore.Reader) error {
		rows, err := r.Runs(ctx, maxListed)
		for _, row := range rows {
			if row.Owner == s.deps.Owner && !live[row.Run] {
				out.Runs = append(out.Runs, &pb.RunSummary{Run: row.Run, Name: row.Agent, State: row.State, Reason: row.Reason})
			}
		}
		return err
	})
	if fault.KindOf(err) == fault.NotFound {
		err = nil // no state yet
	}
	return connect.NewResponse(out), apierr.ToConnect(err)
}

const maxListed = 200 // ended runs that List shows

// Inspect shows one live run with its plan.
func (s *Service) Inspect(_ context.Context, req *connect.Request[pb.RunInspectRequest]) (*connect.Response[pb.RunInspectResponse], error) {
	r, err := s.deps.Table.find(s.deps.Owner, req.Msg.GetRun())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	plan, err := Render(r.Plan(), r.Started().GetProfile(), r.Started().GetNotices())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return connect.NewResponse(&pb.RunInspectResponse{Summary: r.Summary(), Plan: plan, Layers: r.Started().GetLayers()}), nil
}

// Logs streams the kept output of a run, and with follow what comes.
func (s *Service) Logs(ctx context.Context, req *connect.Request[pb.RunLogsRequest], out *connect.ServerStream[pb.RunOutput]) error {
	r, err := s.deps.Table.find(s.deps.Owner, req.Msg.GetRun())
	if fault.KindOf(err) == fault.NotFound {
		return apierr.ToConnect(s.endedLogs(ctx, req.Msg.GetRun(), out))
	}
	if err != nil {
		return apierr.ToConnect(err)
	}
	sub, leave := r.Subscribe(true)
	defer leave()
	if !req.Msg.GetFollow() {
		for {
			select {
			case o := <-sub.C:
				if err := out.Send(o); err != nil {
					return err
				}
				continue
			default:
				return nil
			}
		}
	}
	for {
		select {
		case o, open := <-sub.C:
			if !open {
				return nil
			}
			if err := out.Send(o); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// endedLogs reads the tail that the run's last record keeps.
func (s *Service) endedLogs(ctx context.Context, ref string, out *connect.ServerStream[pb.RunOutput]) error {
	return s.deps.Reader(ctx, func(r *statestore.Reader) error {
		id, err := r.ResolveRun(ctx, ref)
		if err != nil {
			return err
		}
		if row, err := r.RunByID(ctx, id); err != nil || row.Owner != s.deps.Owner {
			return fault.New(fault.NotFound, "`agentos ps --all` lists your runs", "find run %.80q", ref)
		}
		for it, err := range r.Log(ctx, statestore.Filter{Run: id}) {
			if err != nil {
				return err
			}
			c, ok := it.Record.Payloads["output"]
			if !ok {
				continue
			}
			p, err := r.Payload(ctx, c)
			if err != nil {
				return err
			}
			if err := out.Send(&pb.RunOutput{Output: &pb.RunOutput_Stdout{Stdout: p.Data}}); err != nil {
				return err
			}
		}
		return nil
	})
}

// maxGrace bounds how long a program may take to end after SIGTERM.
const maxGrace = time.Minute

// Stop ends a run's whole tree and answers when its end is recorded.
func (s *Service) Stop(_ context.Context, req *connect.Request[pb.RunStopRequest]) (*connect.Response[pb.RunStopResponse], error) {
	r, err := s.deps.Table.find(s.deps.Owner, req.Msg.GetRun())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	grace := min(time.Duration(req.Msg.GetGraceMs())*time.Millisecond, maxGrace)
	if req.Msg.GetKill() {
		grace = 0
	}
	r.Stop(grace)
	x := r.Exited()
	return connect.NewResponse(&pb.RunStopResponse{State: r.Summary().GetState(), Reason: x.GetReason()}), nil
}

// Plan shows the sandbox that a spec would get.
func (s *Service) Plan(ctx context.Context, req *connect.Request[pb.RunSpec]) (*connect.Response[pb.RunPlan], error) {
	p, err := s.deps.Plan(ctx, req.Msg)
	return connect.NewResponse(p), apierr.ToConnect(err)
}

// Profiles lists the profiles that can be used.
func (s *Service) Profiles(context.Context, *connect.Request[pb.ProfilesRequest]) (*connect.Response[pb.ProfilesResponse], error) {
	p, err := s.deps.Profiles()
	return connect.NewResponse(p), apierr.ToConnect(err)
}
