package audit

import "time"

// Kind names what a record is about. The set is closed: docs/spec/audit-record.md.
type Kind string

// The kinds of this version.
const (
	KindGenesis  Kind = "log.genesis"  // first record: names the log and its key
	KindRunStart Kind = "run.start"    // a run exists: principal, goal, limits, policy
	KindRunState Kind = "run.state"    // a run changed its lifecycle state
	KindRunEnd   Kind = "run.end"      // a run is over: reason, totals
	KindIntent   Kind = "call.intent"  // admitted; durable before the effect starts
	KindOutcome  Kind = "call.outcome" // the one outcome of an intent (INV-01)
	KindDenied   Kind = "call.denied"  // a stage refused: intent and outcome in one
	KindRecovery Kind = "log.recovery" // a start after a crash: what was found
)

// Entry is what a caller wants recorded. The writer adds sequence number and
// payload commitments and turns it into a Record.
type Entry struct {
	Kind  Kind
	At    time.Time // wall clock, UTC
	Run   string
	Call  string
	Agent string
	Owner uint32
	Body  any // encodes to a JSON object without secrets; at most MaxBody bytes
	// Payloads are kept once, outside the record, under a salted hash; the
	// record carries only the commitment.
	Payloads []Payload
}

// Payload is a large value that belongs to a record: arguments, a result, a
// model request. Secrets must have been removed by the caller.
type Payload struct {
	Name  string // unique in the entry: "args", "result", "request", "response", "goal"
	Media string // "application/json", "text/plain"
	Data  []byte
}

// MaxBody bounds the canonical encoding of Entry.Body in bytes.
const MaxBody = 32 << 10
