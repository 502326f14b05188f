package config

import (
	"sort"

	"agentos/internal/trusted/budget"
)

// shape is what a key takes, before its meaning is checked.
type shape int

const (
	shapeText shape = iota
	shapePath       // absolute in files, relative to the working directory elsewhere
	shapeInt
	shapeBool
	shapeTime // seconds, or a Go duration
	shapeList
)

func (s shape) String() string {
	return [...]string{"text", "a path", "a whole number", "true or false", "a time such as 120s or 2m (a bare number is seconds)", "a list"}[s]
}

// key is one setting: its names in each layer, its default, and how a raw value
// becomes part of a Config.
type key struct {
	name  string
	env   []string // the first is the name, the others are aliases
	shape shape
	def   string // as a person would write it
	help  string
	set   func(*Config, raw) error
}

// raw is a value as some layer gave it.
type raw struct {
	text   string
	list   []string
	origin Origin
	source string
}

// maxLimit bounds counts so that sums of them never overflow an int64.
const maxLimit = 1 << 40

// table is every key there is, in the order in which they are shown.
func table() []key {
	ks := []key{
		{"state_dir", []string{"AGENTOS_STATE_DIR"}, shapePath, "", "state and audit log; mode 0700",
			pathTo(func(c *Config, v string) { c.StateDir = v })},
		{"project", []string{"AGENTOS_PROJECT"}, shapeText, "default", "project that is charged",
			nameTo(func(c *Config, v string) { c.Project = v })},

		{"model.backend", []string{"AGENTOS_MODEL_BACKEND"}, shapeText, "auto", "auto, socket, replay or rules", setBackend},
		{"model.socket", []string{"AGENTOS_MODEL_SOCKET", "AGENTOS_NPU_SERVER_SOCKET"}, shapePath, "", "Unix socket of a local model server",
			pathTo(func(c *Config, v string) { c.Model.Socket = v })},
		{"model.socket_group", []string{"AGENTOS_MODEL_SOCKET_GROUP"}, shapeText, "", "group that must own the socket",
			nameTo(func(c *Config, v string) { c.Model.SocketGroup = v })},
		{"model.name", []string{"AGENTOS_MODEL_NAME", "AGENTOS_NPU_SERVER_MODEL"}, shapeText, "agentos-npu", "model name sent to the server", setModelName},
		{"model.stream", []string{"AGENTOS_MODEL_STREAM"}, shapeBool, "true", "ask the server for a stream",
			boolTo(func(c *Config, v bool) { c.Model.Stream = v })},
		{"model.timeout", []string{"AGENTOS_MODEL_TIMEOUT_S", "AGENTOS_NPU_SERVER_TIMEOUT_S"}, shapeTime, "240s", "deadline of one model call", setTimeout},
		{"model.replay", []string{"AGENTOS_MODEL_REPLAY"}, shapePath, "", "scripted turns for the replay backend",
			pathTo(func(c *Config, v string) { c.Model.Replay = v })},

		{"agent.id", []string{"AGENTOS_AGENT_ID"}, shapeText, "default-agent", "stable agent name",
			nameTo(func(c *Config, v string) { c.Agent.ID = v })},
		{"agent.owner_uid", []string{"AGENTOS_OWNER_UID"}, shapeInt, "", "owning Linux UID; unset: the caller's", setOwner},
		{"agent.uid", []string{"AGENTOS_AGENT_UID"}, shapeInt, "", "UID of the agent; unset: from the reserved range", setUID},
		{"agent.gid", []string{"AGENTOS_AGENT_GID"}, shapeInt, "", "GID of the agent; unset: from the reserved range", setGID},
		{"agent.limits.iterations", []string{"AGENTOS_AGENT_MAX_ITERATIONS"}, shapeInt, "8", "model turns of a run",
			countTo(1, 10000, func(c *Config, v int64) { c.Agent.Limits.Iterations = int(v) })},
		{"agent.limits.tool_calls", []string{"AGENTOS_AGENT_MAX_TOOL_CALLS"}, shapeInt, "16", "tool calls of a run",
			countTo(0, 100000, func(c *Config, v int64) { c.Agent.Limits.ToolCalls = int(v) })},
		{"agent.limits.elapsed", []string{"AGENTOS_AGENT_MAX_ELAPSED_S"}, shapeTime, "120s", "time a run may take", setElapsed},
		{"agent.limits.output_tokens", []string{"AGENTOS_AGENT_MAX_OUTPUT_TOKENS"}, shapeInt, "2048", "tokens a model may write in a turn",
			countTo(1, 1<<24, func(c *Config, v int64) { c.Agent.Limits.OutputTokens = int(v) })},
		{"agent.limits.total_tokens", []string{"AGENTOS_AGENT_MAX_TOTAL_TOKENS"}, shapeInt, "65536", "tokens of a run, read and written",
			countTo(1, 1<<30, func(c *Config, v int64) { c.Agent.Limits.TotalTokens = int(v) })},
		{"agent.limits.workers", []string{"AGENTOS_AGENT_MAX_SAFE_WORKERS"}, shapeInt, "4", "read-only calls at once",
			countTo(1, 64, func(c *Config, v int64) { c.Agent.Limits.Workers = int(v) })},

		{"tools.service_allowlist", []string{"AGENTOS_SERVICE_INSPECT_ALLOWLIST"}, shapeList, "", "systemd units that tools may read; empty: none", setServices},
		{"tools.output_limit", []string{"AGENTOS_TOOL_OUTPUT_LIMIT_BYTES"}, shapeInt, "65536", "bytes of one tool result",
			countTo(1024, 4<<20, func(c *Config, v int64) { c.Tools.OutputLimit = int(v) })},
		{"tools.argument_limit", []string{"AGENTOS_TOOL_ARGUMENT_LIMIT_BYTES"}, shapeInt, "65536", "bytes of one call's arguments",
			countTo(2, 4<<20, func(c *Config, v int64) { c.Tools.ArgumentLimit = int(v) })},

		{"policy.dir", []string{"AGENTOS_POLICY_DIR"}, shapePath, "", "policies beside the shipped ones",
			pathTo(func(c *Config, v string) { c.Policy.Dir = v })},
		{"audit.anchors", []string{"AGENTOS_AUDIT_ANCHORS"}, shapeList, "journald", "where checkpoints go: journald, file:/path", setAnchors},
	}
	return append(ks, budgetKeys()...)
}

func budgetKeys() (ks []key) {
	for _, level := range []string{"owner", "project", "agent"} {
		for _, r := range []struct {
			res  budget.Resource
			help string
		}{
			{budget.Tokens, "model tokens"}, {budget.ToolCalls, "tool calls"},
			{budget.ModelCall, "model calls"},
		} {
			ks = append(ks, key{
				name: "budgets." + level + "." + string(r.res), env: nil, shape: shapeInt, def: "",
				help: r.help + " of the " + level + "; unset: no limit",
				set: countTo(0, maxLimit, func(c *Config, v int64) {
					c.Budgets = append(c.Budgets, Budget{Level: level, Resource: r.res, Limit: v})
				}),
			})
		}
	}
	return ks
}

// EnvNames lists every environment variable that Load reads, sorted.
func EnvNames() []string {
	names := []string{EnvConfig}
	for _, k := range table() {
		names = append(names, k.env...)
	}
	sort.Strings(names)
	return names
}
