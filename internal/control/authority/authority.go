// Package authority builds the gate for one agent of one owner from the
// configuration: policies, registry, grants, budgets. It decides nothing; it is
// where the stages' data comes from.
//
// State owned: none beyond what it builds. Imports: control/{config,registry},
// execution/tool, trusted. Imported by: control/daemon and the API handlers,
// which explain with the very gate that enforces. Safe for concurrent use.
// Invariants: every list that is empty grants nothing (C-10); a policy file that
// can't be read or compiled stops the start (INV-02).
// Tests: authority_test.go.
package authority

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"agentos/internal/control/config"
	"agentos/internal/control/registry"
	"agentos/internal/execution/tool"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/approval"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/capability"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/policy"
)

// Config says for whom.
type Config struct {
	Settings config.Config
	Owner    uint32
	Tools    []tool.Descriptor // all that this version has
	Model    registry.Model
}

// Authority is a gate with its parts.
type Authority struct {
	Gate     *gate.Gate
	Policies *policy.Set
	Registry *registry.Registry
	Grants   *capability.Table
	Ledger   *budget.Ledger
	Offered  []tool.Descriptor // tools of a run, in the catalogue's order

	cfg Config
}

// trust is the agent's state; it changes with the trust states to come, until
// then every agent is in the first one.
const trust = "normal"

// New builds the gate over a journal and the ledger of the same state. Gates of
// one state share its ledger, or two runs could spend one budget (INV-03).
func New(cfg Config, j gate.Journal, ledger *budget.Ledger, now func() time.Time) (*Authority, error) {
	files, err := Sources(cfg.Settings.Policy.Dir)
	if err != nil {
		return nil, err
	}
	set, err := policy.Compile(files)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "correct the files, and test them by `agentos policy check`", "load policies")
	}
	s := cfg.Settings
	reg, err := registry.New(registry.Config{
		Tools: cfg.Tools, ArgumentLimit: s.Tools.ArgumentLimit, OutputLimit: s.Tools.OutputLimit,
		Model: cfg.Model, Owner: cfg.Owner, Agent: s.Agent.ID,
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "load tools")
	}
	a := &Authority{
		Policies: set, Registry: reg, Grants: capability.NewTable(), Ledger: ledger,
		Offered: offered(cfg.Tools, s.Tools.ServiceAllowlist), cfg: cfg,
	}
	a.setLimits()
	a.Gate = gate.New(gate.Deps{
		Catalog: reg, Grants: a.Grants, Policy: decider{set}, Ledger: a.Ledger, Keys: a.keysOf,
		Approver: approval.Absent{}, Journal: j, Now: now,
	})
	return a, nil
}

// offered leaves out tools whose allow list is empty: they could only refuse.
func offered(all []tool.Descriptor, allow []string) []tool.Descriptor {
	var out []tool.Descriptor
	for _, d := range all {
		if d.Allowlist == "" || len(allow) > 0 {
			out = append(out, d)
		}
	}
	return out
}

// RunGrants is what a run's agent holds. The IDs and the run are filled in by
// whoever starts the run. Tools that are not offered are granted with an empty
// allow list, so that a call of one is refused with the reason.
func (a *Authority) RunGrants() []capability.Grant {
	out := []capability.Grant{{Action: call.ModelGenerate, Resource: a.cfg.Model.Backend}}
	for _, d := range a.cfg.Tools {
		g := capability.Grant{Action: call.ToolCall, Resource: d.Name}
		if d.Allowlist != "" {
			g.Allowed = map[string][]string{d.Allowlist: a.cfg.Settings.Tools.ServiceAllowlist}
		}
		out = append(out, g)
	}
	return out
}

// RunLimits is the budget of one run.
func (a *Authority) RunLimits() budget.Amount {
	l := a.cfg.Settings.Agent.Limits
	return budget.Amount{
		budget.ToolCalls: int64(l.ToolCalls), budget.ModelCall: int64(l.Iterations), budget.Tokens: int64(l.TotalTokens),
	}
}

// keysOf is the chain that pays: the run, its agent, the project, the owner.
func (a *Authority) keysOf(s call.Subject) []budget.Key {
	var keys []budget.Key
	if s.Run != "" {
		keys = append(keys, budget.RunKey(s.Run))
	}
	agent, project, owner := a.keys(s.Owner)
	if s.Agent != "" {
		keys = append(keys, agent)
	}
	return append(keys, project, owner)
}

func (a *Authority) keys(uid uint32) (agent, project, owner budget.Key) {
	return budget.Key(fmt.Sprintf("agent:%d/%s", uid, a.cfg.Settings.Agent.ID)),
		budget.Key(fmt.Sprintf("project:%d/%s", uid, a.cfg.Settings.Project)),
		budget.Key(fmt.Sprintf("owner:%d", uid))
}

func (a *Authority) setLimits() {
	agent, project, owner := a.keys(a.cfg.Owner)
	by := map[string]budget.Key{"agent": agent, "project": project, "owner": owner}
	limits := map[budget.Key]budget.Amount{}
	for _, b := range a.cfg.Settings.Budgets {
		k := by[b.Level]
		if limits[k] == nil {
			limits[k] = budget.Amount{}
		}
		limits[k][b.Resource] = b.Limit
	}
	for k, amount := range limits {
		a.Ledger.SetLimit(k, amount)
	}
}

// decider puts the gate's question to the policies.
type decider struct{ set *policy.Set }

// Decide implements the gate's Policy.
func (d decider) Decide(c *call.Call, t *gate.Target) policy.Decision {
	return d.set.Decide(Request(c, t))
}

// Request is the question that the gate asks about a call.
func Request(c *call.Call, t *gate.Target) policy.Request {
	return policy.Request{
		Principal: policy.Principal{Owner: c.Subject.Owner, Agent: c.Subject.Agent, Trust: trust},
		Action:    string(c.Action),
		Resource:  policy.Resource{Type: t.Type, Name: c.Resource, Effect: t.Effect, Local: t.Local, Owner: t.Owner, Trust: trust},
		Args:      c.Args, Run: c.Subject.Run,
	}
}

const maxPolicyDir = 1 << 20 // bytes of one file, see policy.Compile

// Sources returns the shipped policies and the owner's own: every *.cedar file
// of dir, by name. An empty dir means only the shipped ones; one that can't be
// read is an error.
func Sources(dir string) ([]policy.Source, error) {
	files := policy.Default()
	if dir == "" {
		return files, nil
	}
	const next = "correct policy.dir (AGENTOS_POLICY_DIR), or make the directory readable"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, next, "read policy directory %q", dir)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".cedar") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() || st.Size() > maxPolicyDir {
			return nil, fault.New(fault.Usage, next, "read policy %q: not a regular file of at most %d bytes", path, maxPolicyDir)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fault.Wrap(err, fault.Usage, next, "read policy %q", path)
		}
		files = append(files, policy.Source{Name: path, Text: data})
	}
	return files, nil
}
