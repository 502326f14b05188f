//go:build linux

package runapi

import (
	"encoding/json"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/execution/sandbox"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// Render shows a plan to people and programs.
func Render(p sandboxplan.Plan, profile string, notices []string) (*pb.RunPlan, error) {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "show plan")
	}
	out := &pb.RunPlan{Json: string(b), Profile: profile, Notices: notices}
	for _, l := range sandbox.Explain(p) {
		out.Lines = append(out.Lines, &pb.PlanLine{Section: l.Section, Subject: l.Subject, Access: l.Access, Why: l.Why})
	}
	return out, nil
}
