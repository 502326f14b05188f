// Package approval is the gate's last stage before the record: a person's
// consent to one exact call.
//
// State owned: none in this version: there is no broker yet, so Absent is the
// only approver and it refuses. Imports: lib/fault, trusted/call. Imported by:
// gate (through its interface), control. Invariant: INV-02: no approver, no
// consent. Tests: approval_test.go.
package approval

import (
	"context"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/call"
)

// Absent is the approver of a host without an approval broker.
type Absent struct{}

// Approve refuses every call.
func (Absent) Approve(_ context.Context, c *call.Call, why string) error {
	return fault.New(fault.Denied,
		"only calls that need no approval can be made here; `agentos policy explain` shows why this one does",
		"%s %q needs a person's approval (%s) and this version has no approval broker", c.Action, c.Resource, why)
}
