// Package profile holds what AgentOS knows about an agent program: which folders
// it needs, which variables it may see, where its home lives. A profile only
// widens a sandbox that starts empty; it is data, in commented YAML files.
//
// State owned: none. Imports: lib/fault, lib/sandboxplan (names, limits), goccy/
// go-yaml. Imported by: execution/sandbox, control. Portable. Invariants: an
// absent, null or empty list allows nothing (C-10); an unknown key is an error
// that names its line; no profile passes a variable that is named like a secret.
// Format: docs/spec/profile.md. Tests: parse_test.go,
// FuzzParse.
package profile

import "agentos/internal/lib/sandboxplan"

// Profile is one agent program's needs.
type Profile struct {
	Name     string
	Summary  string
	File     string   // where it was read from; "built in" for ours
	Commands []string // base names of argv[0] that choose it
	Text     string   // the file itself, with its comments

	Workspace Access // of the caller's working directory
	Git       Access // of the workspace's repository; hooks and configuration stay read only
	Program   Find   // what to do with a command outside the system's folders
	Home      Home

	Read  []string // folders and files to read; ~ is the owner's home, $WORKSPACE the workspace
	Exec  []string // the same, and programs in them may be started
	Write []string // the same as Read, and changed

	Set  map[string]string // variables with fixed values; $HOME and $WORKSPACE are replaced
	Pass []string          // names, or prefixes that end in *, taken over from the caller

	Limits   sandboxplan.Limits   // 0: the host's own
	Strength sandboxplan.Strength // asked for when the caller names none; empty: the strongest there is
	Nested   bool                 // may make namespaces of its own
	Why      string               // why Nested is what it is
	Network  []string             // hosts it would like to reach: recorded, nothing is opened
}

// Access says what an agent may do with a place.
type Access string

// The accesses.
const (
	None  Access = "none"
	Read  Access = "read"
	Write Access = "write"
)

// Find says what happens when the command is not in a folder that the sandbox
// shows.
type Find string

// The ways to find a program.
const (
	Refuse  Find = "refuse"  // say which --ro would help
	Package Find = "package" // show the package it belongs to, read only
)

// Home says what becomes of the agent's home folder.
type Home string

// The homes.
const (
	Persistent Home = "persistent" // one for each profile and owner; logins and history survive
	Private    Home = "private"    // empty at the start, gone at the end
)
