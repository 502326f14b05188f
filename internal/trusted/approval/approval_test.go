package approval

import (
	"testing"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/call"
)

func TestAbsentRefuses(t *testing.T) {
	err := Absent{}.Approve(t.Context(), &call.Call{Action: call.ToolCall, Resource: "x"}, "risk high")
	if fault.KindOf(err) != fault.Denied || fault.NextOf(err) == "" {
		t.Fatalf("got %v", err)
	}
}
