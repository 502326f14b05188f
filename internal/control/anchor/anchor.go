// Package anchor sends signed checkpoints out of reach of whoever can write to
// the state directory: a local log alone can't show that its tail was cut.
//
// State owned: none; an anchor file belongs to its owner. Imports: lib/fault.
// Imported by: control (daemon), which sends a checkpoint after each run
// and on request, and doctor. Locks: none; each Send stands alone and is safe
// for concurrent use.
// Invariants: INV-11: an anchor only ever adds; Send returns nil only when the
// receiver has it (journald: the datagram is queued; file: synced).
// Format of what is sent: docs/spec/audit-log.md. Tests: anchor_test.go.
package anchor

import "context"

// Anchor receives checkpoints.
type Anchor interface {
	// Name says where checkpoints go: "journald", "file:/var/lib/…".
	Name() string
	// Send hands over one signed note. Faults: Unavailable when there is no such
	// receiver on this host, with what to do instead.
	Send(ctx context.Context, note []byte) error
}

// maxNote bounds what is sent, in bytes: a datagram to journald must hold it.
const maxNote = 4 << 10
