package policy

// Request is one question to the policy. All values come from the gate, never
// from the agent, except Args, which are checked canonical arguments.
type Request struct {
	Principal Principal
	Action    string // "agent.start", "tool.call", "model.generate"
	Resource  Resource
	Args      []byte // canonical JSON object; scalars of depth one are context.args
	Run       string
}

// Principal is an owner acting in person (Agent empty) or an owner's agent.
type Principal struct {
	Owner uint32
	Agent string
	Trust string // "normal", "restricted", "quarantined"
}

// Resource is a tool, a model or an agent.
type Resource struct {
	Type   string // "Tool", "Model", "Agent"
	Name   string
	Effect string // tools: "read", "write", "admin"
	Local  bool   // models: served on this machine
	Owner  uint32 // agents: the owner's UID
	Trust  string // agents: "normal", "restricted", "quarantined"
}

// Decision is the answer, with everything needed to explain it.
type Decision struct {
	Allow    bool
	Revision string   // "sha256:…" of the policy set and schema that decided
	Rules    []Rule   // deciding rules: the forbids, or the permits, in file order
	Errors   []string // evaluation errors; any error is a denial (INV-02)
	// Obligations are annotations of the deciding permits: "approval" → "owner".
	Obligations map[string]string
}

// Rule names a policy in its file.
type Rule struct {
	ID     string // @id annotation
	Effect string // "permit" or "forbid"
	File   string
	Line   int
	Reason string // @reason annotation, for people
}
