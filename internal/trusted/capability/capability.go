// Package capability holds what a run's agent has been granted: which action on
// which resource, with which argument values, until when. A call without a
// grant is denied before any policy is asked.
//
// State owned: the live grants of this process. Imports: lib/fault, trusted/call.
// Imported by: gate (through its interface), control. Locks: Table.mu, a leaf.
// Invariants: INV-02: an empty table, an empty constraint list and a missing
// argument allow nothing (C-10). INV-04: once Revoke or RevokeRun has returned,
// Check finds the grant no more. Grants are references kept here; they never
// travel. Tests: capability_test.go.
package capability

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/call"
)

// Grant allows one action on one resource.
type Grant struct {
	ID       string
	Run      string // the run that holds it
	Action   call.Action
	Resource string
	// Allowed lists, for each constrained argument, the exact string values that
	// may be passed. A constrained argument must be present. An empty list
	// allows no value.
	Allowed map[string][]string
	Expires time.Time // zero: with the run
}

// Table holds grants. Safe for concurrent use.
type Table struct {
	mu    sync.RWMutex
	byRun map[string][]Grant
}

// NewTable returns an empty table, which allows nothing.
func NewTable() *Table { return &Table{byRun: map[string][]Grant{}} }

// Add puts a grant in force. The grant must name its run, action and resource.
func (t *Table) Add(g Grant) error {
	if g.ID == "" || g.Run == "" || g.Action == "" || g.Resource == "" {
		return fmt.Errorf("add grant %q: run, action and resource are required", g.ID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byRun[g.Run] = append(t.byRun[g.Run], g)
	return nil
}

// RevokeRun ends every grant of a run.
func (t *Table) RevokeRun(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byRun, run)
}

// Revoke ends one grant; false when there was none with that ID.
func (t *Table) Revoke(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for run, gs := range t.byRun {
		for i, g := range gs {
			if g.ID == id {
				t.byRun[run] = append(append([]Grant(nil), gs[:i]...), gs[i+1:]...)
				return true
			}
		}
	}
	return false
}

// Check returns the ID of the grant that carries c, or a fault of kind Denied. The owner in
// person (no agent) needs none and gets "owner".
func (t *Table) Check(c *call.Call) (string, error) {
	if c.Subject.Agent == "" {
		return "owner", nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	var why error
	for _, g := range t.byRun[c.Subject.Run] {
		if g.Action != c.Action || g.Resource != c.Resource {
			continue
		}
		if !g.Expires.IsZero() && !c.At.Before(g.Expires) {
			why = fault.New(fault.Denied, "start a new run", "the grant for %s %q expired at %s", c.Action, c.Resource, g.Expires.UTC().Format(time.RFC3339))
			continue
		}
		if err := g.fits(c.Args); err != nil {
			why = err
			continue
		}
		return g.ID, nil
	}
	if why != nil {
		return "", why
	}
	return "", fault.New(fault.Denied, "use what the run was given when it started: its run.start record lists it",
		"no grant for %s %q in this run", c.Action, c.Resource)
}

// fits checks the argument constraints against canonical arguments.
func (g *Grant) fits(args []byte) error {
	if len(g.Allowed) == 0 {
		return nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(args, &m); err != nil {
		return fault.New(fault.Denied, "send one JSON object", "arguments are not an object")
	}
	for _, name := range sortedKeys(g.Allowed) {
		var v string
		raw, present := m[name]
		if !present || len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &v) != nil {
			return fault.New(fault.Denied, "give it as a string", "argument %q must be one of the granted values", name)
		}
		if !contains(g.Allowed[name], v) {
			return fault.New(fault.Denied, "add it to tools.service_allowlist (AGENTOS_SERVICE_INSPECT_ALLOWLIST) if the agent may read it",
				"%s %.128q is not on the allow list of %s (%s)", name, v, g.Resource, list(g.Allowed[name]))
		}
	}
	return nil
}

func list(vs []string) string {
	if len(vs) == 0 {
		return "empty"
	}
	return strings.Join(vs, ", ")
}

func contains(vs []string, v string) bool {
	for _, x := range vs {
		if x == v {
			return true
		}
	}
	return false
}

func sortedKeys(m map[string][]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
