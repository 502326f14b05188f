// Package budget is the hierarchical ledger: reserve an upper bound before an
// effect, settle what it really used after.
//
// State owned: balances and open reservations, in memory; the journal makes
// each change durable in the same transaction as the record it belongs to, and
// gives the state back at start. Imports: standard library. Imported by: gate,
// control. Locks: Ledger.mu, a leaf. Invariants: INV-03: for every key and
// resource, used + reserved never exceeds the limit by an admission; an overrun
// reported at settlement is debited and closes the budget.
// Tests: ledger_test.go (property test over interleavings).
package budget

// Resource is what a budget counts.
type Resource string

// The resources of this version.
const (
	Tokens    Resource = "tokens"      // model tokens, input plus output
	ToolCalls Resource = "tool_calls"  // count
	ModelCall Resource = "model_calls" // count
)

// Key is one node of the hierarchy: "owner:1000", "project:default",
// "agent:default-agent", "run:run-01j…". A charge to a run is charged to every
// key of its chain.
type Key string

// RunKey is the key of one run.
func RunKey(run string) Key { return Key("run:" + run) }

// Amount is an upper bound or a use, by resource; never negative.
type Amount map[Resource]int64

// Reservation is an open upper bound, durable with its call's intent.
type Reservation struct {
	Call   string
	Keys   []Key
	Amount Amount
}

// Change is one ledger mutation, to be made durable with a record. Exactly one
// of the two is set.
type Change struct {
	Reserve *Reservation // opened
	Settle  *Settlement  // closed
}

// Settlement closes the reservation of a call and charges Used to its keys.
type Settlement struct {
	Call string
	Keys []Key
	Used Amount
}

// Balance is the durable state of one key and resource.
type Balance struct {
	Key      Key
	Resource Resource
	Used     int64
}

// State is what the journal gives back at start.
type State struct {
	Balances []Balance
	Open     []Reservation
}
