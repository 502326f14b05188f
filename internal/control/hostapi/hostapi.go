//go:build linux

// Package hostapi answers for the host: `doctor` and `config show`.
//
// State owned: none. Imports: api/{agentosv1,apierr}, control/config,
// host/probe, lib/fault. Imported by: control/daemon. Invariants: what can't be
// found out is said, never assumed good; no secret is shown.
// Tests: hostapi_test.go. Spec: OSA-09, OSA-10.
package hostapi

import (
	"context"

	"connectrpc.com/connect"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/control/config"
)

// Config returns every setting with its origin.
func (s *Service) Config(context.Context, *connect.Request[pb.ConfigRequest]) (*connect.Response[pb.ConfigResponse], error) {
	out := &pb.ConfigResponse{Files: s.deps.Settings.Files, Notices: s.deps.Settings.Notices}
	for _, v := range s.deps.Settings.Values {
		out.Values = append(out.Values, &pb.ConfigValue{Key: v.Key, Value: v.Value, Origin: string(v.Origin), Source: v.Source, Help: v.Help})
	}
	return connect.NewResponse(out), nil
}

// Deps is all that the handlers may touch.
type Deps struct {
	Settings *config.Result
	// Sections are the parts of a report, in order; each looks for itself.
	Sections []Section
}

// Section looks for itself and reports.
type Section func(context.Context) *pb.DoctorSection

// Service implements HostService.
type Service struct{ deps Deps }

// New starts nothing.
func New(d Deps) *Service { return &Service{d} }

// Doctor looks at everything a run depends on. The verdict is the worst that a
// section found: unsafe before reduced before full.
func (s *Service) Doctor(ctx context.Context, _ *connect.Request[pb.DoctorRequest]) (*connect.Response[pb.DoctorResponse], error) {
	out := &pb.DoctorResponse{Verdict: "full"}
	unsafe, reduced := 0, 0
	for _, section := range s.deps.Sections {
		sec := section(ctx)
		out.Sections = append(out.Sections, sec)
		for _, it := range sec.GetItems() {
			switch it.GetState() {
			case "unsafe":
				unsafe++
			case "reduced":
				reduced++
			}
		}
	}
	switch {
	case unsafe > 0:
		out.Verdict, out.Summary = "unsafe", "something here makes isolation worthless until it is put right"
	case reduced > 0:
		out.Verdict, out.Summary = "reduced", "runs are confined, with less than this version's full strength; each line that says reduced tells what is weaker"
	default:
		out.Summary = "runs get this version's full strength"
	}
	return connect.NewResponse(out), nil
}
