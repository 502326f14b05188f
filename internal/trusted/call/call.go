// Package call is the vocabulary of the gate: what a call, a subject and an
// outcome are. Values only.
//
// State owned: none. Imports: lib/canon. Imported by: every trusted room and
// whoever builds calls. Invariants: a Call is immutable once New returned it;
// Args is in canonical form (RFC 8785) and Digest covers it, so the same
// request always has the same digest (INV-07 builds on it).
// Tests: call_test.go.
package call

import (
	"strings"
	"time"

	"agentos/internal/lib/canon"
)

// Action is what a call does; the closed set that policies are written for.
type Action string

// The actions of this version.
const (
	AgentStart    Action = "agent.start"    // an owner starts a run of an agent
	ToolCall      Action = "tool.call"      // an agent calls a tool
	ModelGenerate Action = "model.generate" // an agent asks a model for one turn
)

// Subject is who calls, as established by the supervisor from the run's
// listener and the kernel's credentials, never from what the caller says.
type Subject struct {
	Owner uint32 // Linux UID of the owner
	Agent string // agent ID; empty when the owner calls in person
	Run   string // run ID; empty before a run exists
}

// Call is one proposal to do something.
type Call struct {
	ID       string // "call-" + ULID
	Subject  Subject
	Action   Action
	Resource string        // tool, model or agent name
	Args     []byte        // canonical JSON object
	Digest   string        // of action, resource and args: see New
	At       time.Time     // wall clock, UTC
	Timeout  time.Duration // 0: the gate's default
}

// New canonicalises args (a JSON object; nil means {}) and computes the digest.
// Errors: args is not a JSON object, breaks I-JSON or exceeds canon's limits.
func New(id string, s Subject, a Action, resource string, args []byte, at time.Time) (Call, error) {
	if len(args) == 0 {
		args = []byte("{}")
	}
	c, err := canon.Object(args)
	if err != nil {
		return Call{}, err
	}
	d := canon.Digest([]byte("agentos-call/v1\n" + string(a) + "\n" + escape(resource) + "\n" + string(c)))
	return Call{ID: id, Subject: s, Action: a, Resource: resource, Args: c, Digest: d, At: at.UTC()}, nil
}

// escape keeps a newline in a resource name from shifting the digest's fields.
func escape(s string) string { return strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(s) }

// Status is how a call ended. Every intent gets exactly one (INV-01).
type Status string

// The closed set of INV-01.
const (
	OK        Status = "ok"
	Denied    Status = "denied"
	Error     Status = "error"
	Timeout   Status = "timeout"
	Cancelled Status = "cancelled"
	Unknown   Status = "unknown" // crash between intent and outcome
)
