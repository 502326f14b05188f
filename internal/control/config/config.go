// Package config is the one door through which settings enter: flags,
// environment, files and defaults become one typed Config, and each value knows
// where it came from.
//
// State owned: none; Load reads files once. Imports: lib/fault, lib/setting,
// trusted/budget (names of resources). Imported by: cmd/agentosd and whoever is
// handed a Config. Invariants: precedence flag > environment > file > default
// (OSA-10); a Config that Load returned without error is valid, nobody checks
// it again; an empty, null or absent allow list allows nothing (C-10); every
// problem is reported, not just the first.
// Tests: config_test.go, file_test.go, FuzzParseFile; docs/config.reference.yaml
// is parsed by a test. Spec: docs/spec/config.md.
package config

import (
	"time"

	"agentos/internal/trusted/budget"
)

// Backend chooses who answers model calls.
type Backend string

// The backends of this version.
const (
	BackendAuto   Backend = "auto"   // a configured socket, then rules
	BackendSocket Backend = "socket" // Chat Completions over a Unix socket
	BackendReplay Backend = "replay" // scripted turns from a file
	BackendRules  Backend = "rules"  // the built-in table of intents
)

// Config is what a run needs to know. Values are checked; times are durations,
// sizes are bytes, paths are absolute.
type Config struct {
	StateDir string
	Project  string
	Model    Model
	Agent    Agent
	Tools    Tools
	Policy   Policy
	Audit    Audit
	Budgets  []Budget // in the order of the key table; absent: no limit there
}

// Model says who answers and where.
type Model struct {
	Backend     Backend
	Socket      string // path of a Unix socket; set when Backend is socket
	SocketGroup string // group that must own the socket; empty: not checked
	Name        string // model name sent to the server
	Stream      bool
	Timeout     time.Duration // one model call
	Replay      string        // file; set when Backend is replay
}

// Agent is the principal that acts. Nil identities are chosen by the daemon:
// the caller's UID for the owner, one of the reserved range for the agent.
type Agent struct {
	ID       string
	OwnerUID *uint32
	UID, GID *uint32 // never 0
	Limits   Limits
}

// Limits end a run with a typed reason. Spec: OSA-01.
type Limits struct {
	Iterations   int
	ToolCalls    int
	Elapsed      time.Duration
	OutputTokens int // one turn
	TotalTokens  int // whole run, input and output
	Workers      int // read-only calls at once
}

// Tools bounds what tools may touch and return.
type Tools struct {
	ServiceAllowlist []string // systemd units; empty: none
	OutputLimit      int      // bytes of one result
	ArgumentLimit    int      // bytes of one call's arguments
}

// Policy names policies beside the shipped ones.
type Policy struct {
	Dir string // empty: only the shipped set
}

// Audit says where checkpoints are sent.
type Audit struct {
	Anchors []Anchor // empty: none, which doctor reports
}

// Anchor is a place outside the log that keeps checkpoints.
type Anchor struct {
	Kind string // "journald" or "file"
	Path string // of a file anchor
}

// String is the anchor as it is written in the configuration.
func (a Anchor) String() string {
	if a.Kind == "file" {
		return "file:" + a.Path
	}
	return a.Kind
}

// Budget is a limit for the configured owner, project or agent.
type Budget struct {
	Level    string // "owner", "project", "agent"
	Resource budget.Resource
	Limit    int64 // 0 allows nothing
}

// Origin says which layer a value came from.
type Origin string

// The layers, strongest first.
const (
	FromFlag    Origin = "flag"
	FromEnv     Origin = "env"
	FromFile    Origin = "file"
	FromDefault Origin = "default"
)

// Value is one setting as `config show` prints it.
type Value struct {
	Key    string
	Value  string // as written, lists joined by commas; empty: unset
	Origin Origin
	Source string // "--backend", "AGENTOS_MODEL_BACKEND", "/etc/agentos/config.yaml:12"
	Help   string
}
