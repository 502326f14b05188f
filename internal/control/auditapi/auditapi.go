//go:build linux

// Package auditapi answers questions about the log: records, verification,
// checkpoints, lineage.
//
// State owned: none. Imports: api/{agentosv1,apierr}, control/{anchor,statestore},
// lib/fault, trusted/{audit,gate}. Imported by: control/daemon. Reading takes no
// lock and writes nothing: every commit is signed, a checkpoint is read like a record.
// Tests: auditapi_test.go.
package auditapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/apierr"
	"agentos/internal/control/anchor"
	"agentos/internal/control/statestore"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
)

// Deps is all that the handlers may touch.
type Deps struct {
	Reader  func(ctx context.Context, use func(*statestore.Reader) error) error
	Anchors func() ([]anchor.Anchor, error)
}

// Service implements AuditService.
type Service struct{ deps Deps }

// New starts nothing.
func New(d Deps) *Service { return &Service{d} }

// Log streams the records that match.
func (s *Service) Log(ctx context.Context, req *connect.Request[pb.LogRequest], out *connect.ServerStream[pb.AuditRecord]) error {
	m := req.Msg
	return apierr.ToConnect(s.deps.Reader(ctx, func(r *statestore.Reader) error {
		f := statestore.Filter{From: m.GetFrom(), Limit: int(m.GetLimit()), Tail: m.GetTail()}
		for _, k := range m.GetKinds() {
			f.Kinds = append(f.Kinds, audit.Kind(k))
		}
		var err error
		if m.GetRun() != "" {
			if f.Run, err = r.ResolveRun(ctx, m.GetRun()); err != nil {
				return err
			}
		}
		if m.GetCall() != "" {
			if f.Call, err = r.ResolveCall(ctx, m.GetCall()); err != nil {
				return err
			}
		}
		for it, err := range r.Log(ctx, f) {
			if err != nil {
				return err
			}
			rec, err := record(it)
			if err != nil {
				return err
			}
			if err := out.Send(rec); err != nil {
				return err
			}
		}
		return nil
	}))
}

// record renders a stored record.
func record(it statestore.Item) (*pb.AuditRecord, error) {
	r := it.Record
	out := &pb.AuditRecord{
		Seq: r.Seq, At: timestamppb.New(r.At), Kind: string(r.Kind), Run: r.Run, Call: r.Call, Agent: r.Agent, Owner: r.Owner,
		Payloads: r.Payloads, Leaf: "sha256:" + hex(it.Leaf[:]),
	}
	var body map[string]any
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, "run `agentos audit verify`", "read body of record %d", r.Seq)
	}
	var err error
	if out.Body, err = structpb.NewStruct(body); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "render record %d", r.Seq)
	}
	return out, nil
}

func hex(b []byte) string { return fmt.Sprintf("%x", b) }

// Show returns one record, or the records of one call, with their payloads.
func (s *Service) Show(ctx context.Context, req *connect.Request[pb.ShowRequest]) (*connect.Response[pb.ShowResponse], error) {
	out := &pb.ShowResponse{Payloads: map[string][]byte{}}
	err := s.deps.Reader(ctx, func(r *statestore.Reader) error {
		items, err := find(ctx, r, req.Msg.GetRef())
		if err != nil {
			return err
		}
		for _, it := range items {
			rec, err := record(it)
			if err != nil {
				return err
			}
			out.Records = append(out.Records, rec)
			for _, c := range it.Record.Payloads {
				p, err := r.Payload(ctx, c)
				if fault.KindOf(err) == fault.NotFound {
					continue // forgotten: the commitment stays
				}
				if err != nil {
					return err
				}
				out.Payloads[c] = p.Data
			}
		}
		return nil
	})
	return connect.NewResponse(out), apierr.ToConnect(err)
}

func find(ctx context.Context, r *statestore.Reader, ref string) ([]statestore.Item, error) {
	if seq, err := strconv.ParseUint(ref, 10, 64); err == nil {
		it, err := r.Record(ctx, seq)
		return []statestore.Item{it}, err
	}
	id, err := r.ResolveCall(ctx, ref)
	if err != nil {
		return nil, err
	}
	return r.Call(ctx, id)
}

// Verify recomputes the tree and says what was checked.
func (s *Service) Verify(ctx context.Context, req *connect.Request[pb.VerifyRequest]) (*connect.Response[pb.VerifyResponse], error) {
	m := req.Msg
	out := &pb.VerifyResponse{}
	err := s.deps.Reader(ctx, func(r *statestore.Reader) error {
		opts := audit.Options{Key: m.GetPublicKey(), Live: true}
		if m.GetCheckpoint() != "" {
			notes, err := audit.SplitNotes([]byte(m.GetCheckpoint()))
			if err != nil {
				return fault.Wrap(err, fault.Usage, "give a file that `agentos audit checkpoint --out` or an anchor wrote", "read checkpoint")
			}
			opts.Older = notes
		}
		rep, err := r.Verify(ctx, opts)
		if err != nil {
			return err
		}
		out.Ok, out.Records, out.Root, out.KeyName = rep.First == nil, rep.Records, base64.StdEncoding.EncodeToString(rep.Root[:]), rep.KeyName
		out.KeyFromState, out.Notes = m.GetPublicKey() == "", rep.Notes
		out.CheckpointSize, out.Intents, out.Outcomes = rep.Checkpoint, rep.Intents, rep.Outcomes
		if !rep.At.IsZero() {
			out.CheckpointAt = timestamppb.New(rep.At)
		}
		if p := rep.First; p != nil {
			out.First = &pb.Problem{Seq: p.Seq, Kind: string(p.Kind), Detail: p.Detail, Next: p.Next}
		}
		return nil
	})
	return connect.NewResponse(out), apierr.ToConnect(err)
}

// Checkpoint returns the signed tree head and sends it to the anchors. The head
// is that of the last commit: each one is signed.
func (s *Service) Checkpoint(ctx context.Context, _ *connect.Request[pb.CheckpointRequest]) (*connect.Response[pb.CheckpointResponse], error) {
	out := &pb.CheckpointResponse{}
	anchors, err := s.deps.Anchors()
	if err == nil {
		err = s.deps.Reader(ctx, func(r *statestore.Reader) error {
			note, size, err := r.Checkpoint(ctx)
			if err != nil {
				return err
			}
			out.Note, out.Size, out.PublicKey = string(note), size, r.VerifierKey()
			for _, a := range anchors {
				res := &pb.AnchorResult{Name: a.Name(), Ok: true}
				if err := a.Send(ctx, note); err != nil {
					res.Ok, res.Detail = false, errText(err)
				}
				out.Anchors = append(out.Anchors, res)
			}
			return nil
		})
	}
	return connect.NewResponse(out), apierr.ToConnect(err)
}

func errText(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Next != "" {
		return f.Error() + "; next: " + f.Next
	}
	return err.Error()
}
