// Package launchwire is what agentosd asks of agentos-launcher: a closed list
// of typed requests over host/fdframe. The launcher parses nothing else.
//
// State owned: none. Imports: lib/sandboxplan, go-json-experiment/json. Imported
// by: control, cmd/agentos-launcher. One JSON document a message,
// bounded by MaxMessage; unknown members are errors; exactly one member is set.
// Format: docs/spec/launch-wire.md. Tests: launchwire_test.go, FuzzDecode.
package launchwire

import "agentos/internal/lib/sandboxplan"

// MaxMessage bounds one message in bytes.
const MaxMessage = 1 << 20

// Request is a message to the launcher.
type Request struct {
	Start *Start `json:"start,omitzero"` // descriptor: the shim's end of the lifeline
	Stop  *Stop  `json:"stop,omitzero"`
	Ping  *Ping  `json:"ping,omitzero"`
	// Signal is sent to the command, or to the group in front of its terminal.
	Signal *Signal `json:"signal,omitempty"`
}

// Start makes a sandbox and runs its command. With it comes one descriptor: a
// connected Unix socket, the lifeline. The sandbox's first process keeps it. Over
// it the shim gets one fdframe message {"ready":true} with the terminal's master
// descriptor, or with the far ends of stdin, stdout and stderr in this order.
// When the shim's end closes, the whole sandbox ends.
type Start struct {
	Plan sandboxplan.Plan `json:"plan"`
}

// Stop ends a sandbox: everything in it, whatever it did, within a second.
type Stop struct {
	Run string `json:"run"`
}

// Signal sends a signal to a sandbox's command and its process group.
type Signal struct {
	Run    string `json:"run"`
	Signal string `json:"signal"` // one of gatewire.Signals
}

// Ping asks whether the launcher is there.
type Ping struct{}

// Reply is a message from the launcher.
type Reply struct {
	Started *Started `json:"started,omitzero"` // descriptor: a pidfd of the sandbox's first process
	Exited  *Exited  `json:"exited,omitzero"`
	Failed  *Failed  `json:"failed,omitzero"`
	Pong    *Pong    `json:"pong,omitzero"`
}

// Started says that the command runs.
type Started struct {
	Run     string   `json:"run"`
	PID     int      `json:"pid"`               // of the first process, as the launcher sees it
	Cgroup  []string `json:"cgroup,omitempty"`  // paths of its groups
	Missing []string `json:"missing,omitempty"` // limits that no controller here enforces
	Layers  []string `json:"layers"`            // what confines it, for the record
}

// Exited says that nothing of the sandbox is left.
type Exited struct {
	Run    string `json:"run"`
	Code   int    `json:"code"`             // of the command; -1 with a signal
	Signal int    `json:"signal,omitempty"` // that ended the command
	CPUMS  int64  `json:"cpu_ms"`
	MaxRSS int64  `json:"max_rss"` // bytes
}

// Failed says that a sandbox could not be made. Nothing of it is left.
type Failed struct {
	Run     string `json:"run"`
	Kind    string `json:"kind"` // lib/fault kind
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
	Step    string `json:"step,omitempty"` // the primitive that is missing
}

// Pong answers Ping.
type Pong struct {
	PID  int  `json:"pid"`
	Root bool `json:"root"`
}
