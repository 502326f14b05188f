package gate

import (
	"context"

	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
)

// Tx is what must become durable together: records, ledger changes and run
// states (invariant 3 of the house: record before effect).
type Tx struct {
	Entries []audit.Entry
	Budget  []budget.Change
	Runs    []RunState
}

// RunState is the durable lifecycle state of a run.
type RunState struct {
	Run, Agent string
	Owner      uint32
	State      string // lifecycle state name
	Reason     string // typed end reason, empty while alive
}

// Receipt says where the entries of a Tx went.
type Receipt struct {
	FirstSeq uint64 // sequence number of Entries[0]
	Size     uint64 // tree size after the commit
}

// Journal makes a Tx durable. When Commit returns nil the whole Tx survives a
// crash of the process or the machine; when it returns an error, none of it is
// visible, or the journal is closed for good (every later Commit fails).
// Safe for concurrent use; concurrent commits share one disk flush.
type Journal interface {
	Commit(ctx context.Context, tx Tx) (Receipt, error)
}
