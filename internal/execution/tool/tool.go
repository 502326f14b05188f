// Package tool describes tools: name, schema, effect, limits. It runs nothing;
// package tool/linux reads the machine, cmd/agentos-tool is the process it runs
// in, and execution/sandbox starts that process.
//
// State owned: none. Imports: standard library. Imported by: tool rooms, the
// daemon (which registers descriptors with the gate). Portable: builds on any
// platform. Tests: tool_test.go.
package tool

import (
	"encoding/json"
	"time"
)

// Effect is what a tool can do to the world, the base of its risk class.
type Effect string

// The effects, weakest first.
const (
	Read  Effect = "read"  // observes this machine
	Write Effect = "write" // changes versioned state
	Admin Effect = "admin" // changes system state
)

// Descriptor is everything that the gate and the model may know of a tool.
type Descriptor struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`  // strict: additionalProperties false
	OutputSchema json.RawMessage `json:"output_schema"` // what a complete result looks like
	Effect       Effect          `json:"effect"`
	Deadline     time.Duration   `json:"deadline"`   // whole call, nanoseconds in JSON
	MaxArgs      int             `json:"max_args"`   // bytes of canonical arguments
	MaxResult    int             `json:"max_result"` // bytes of the result document
	// Allowlist names the argument whose values must be allow-listed by the
	// owner (for example "unit"); empty: none.
	Allowlist string `json:"allowlist,omitempty"`
	// Groups are supplementary group names that the tool's process needs to read
	// what it reports, such as systemd-journal.
	Groups []string `json:"groups,omitempty"`
	// Account names a user that the tool's process runs as when it is started by
	// root, because what it asks refuses users that have no account; empty: the
	// tool role's own identity.
	Account string `json:"account,omitempty"`
}

// Confinement is what the tool's process may touch, as paths on this host. It
// is data for the sandbox, computed by the tool's room from validated
// arguments; anything not listed is absent.
type Confinement struct {
	Read    []string // files and directories, read only, beneath
	Exec    []string // binaries and library directories it may execute
	Connect []string // pathname Unix sockets it may connect to
	Procs   bool     // may read other processes' world-readable /proc entries
}

// Result is what a tool's process prints: exactly one JSON document.
type Result struct {
	// Status is "ok", or "unavailable" (the host lacks what the tool reads: a
	// result, not an error), or "error".
	Status string `json:"status"`
	// Data follows the tool's output schema when Status is ok.
	Data json.RawMessage `json:"data,omitempty"`
	// Truncated lists JSON pointers to what was cut to stay within limits.
	Truncated []string `json:"truncated,omitempty"`
	// Error and Next explain a Status other than ok.
	Error string `json:"error,omitempty"`
	Next  string `json:"next,omitempty"`
}
