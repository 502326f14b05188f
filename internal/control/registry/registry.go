// Package registry is the gate's catalogue: which tools, models and agents can
// be called, with their schemas, limits and what a call may cost.
//
// State owned: compiled schemas, fixed at New. Imports: execution/tool, trusted
// (call, gate, budget, label, modelcontext), lib/fault, jsonschema. Imported by:
// control. Safe for concurrent use. Invariants: an unknown target, a document
// that breaks its schema and one over its limit are refused (INV-02); schemas
// are never fetched. Tests: registry_test.go. Spec: AOS-06.
package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"agentos/internal/execution/tool"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/label"
	"agentos/internal/trusted/modelcontext"
)

// Model is the backend that a run may call.
type Model struct {
	Backend   string // resource name: "rules", "socket", "replay"
	Local     bool
	Metered   bool // costs tokens
	MaxOutput int  // tokens a turn
	Timeout   time.Duration
}

// ModelArgs are the arguments of a model call. The request itself is a payload.
type ModelArgs struct {
	Context   string `json:"context"`           // hash of the model context
	Bytes     int    `json:"context_bytes"`     // its size
	MaxOutput int    `json:"max_output_tokens"` // cap that the request carries
	Model     string `json:"model"`             // name sent to the backend
	Stream    bool   `json:"stream"`
}

// StartArgs are the arguments of agent.start.
type StartArgs struct {
	Goal string `json:"goal_hash"` // the goal itself is a payload
}

// Config of a registry. Limits of 0 keep the descriptors' own.
type Config struct {
	Tools         []tool.Descriptor
	ArgumentLimit int // bytes
	OutputLimit   int // bytes
	Model         Model
	Owner         uint32
	Agent         string
}

type entry struct {
	desc   tool.Descriptor
	schema *jsonschema.Schema
}

// Registry implements the gate's Catalog.
type Registry struct {
	cfg   Config
	tools map[string]entry
}

// New compiles the schemas.
func New(cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg, tools: make(map[string]entry, len(cfg.Tools))}
	for _, d := range cfg.Tools {
		if d.MaxArgs = lower(d.MaxArgs, cfg.ArgumentLimit); d.MaxArgs <= 0 {
			return nil, fmt.Errorf("register tool %q: no argument limit", d.Name)
		}
		d.MaxResult = lower(d.MaxResult, cfg.OutputLimit)
		s, err := compile(d)
		if err != nil {
			return nil, fmt.Errorf("register tool %q: %w", d.Name, err)
		}
		if _, dup := r.tools[d.Name]; dup {
			return nil, fmt.Errorf("register tool %q: registered twice", d.Name)
		}
		r.tools[d.Name] = entry{d, s}
	}
	return r, nil
}

func lower(limit, configured int) int {
	if configured > 0 && configured < limit {
		return configured
	}
	return limit
}

// compile reads a schema with a loader that fetches nothing.
func compile(d tool.Descriptor) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.InputSchema))
	if err != nil {
		return nil, fmt.Errorf("parse schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(refuse{})
	url := "agentos:tool/" + d.Name
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("add schema: %w", err)
	}
	s, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return s, nil
}

type refuse struct{}

func (refuse) Load(url string) (any, error) {
	return nil, fmt.Errorf("schema refers to %.200q, and schemas are not fetched", url)
}

// Tool returns the descriptor of a registered tool.
func (r *Registry) Tool(name string) (tool.Descriptor, bool) {
	e, ok := r.tools[name]
	return e.desc, ok
}

// Target finds what c is aimed at and checks its arguments.
func (r *Registry) Target(c *call.Call) (gate.Target, error) {
	switch c.Action {
	case call.ToolCall:
		return r.toolTarget(c)
	case call.ModelGenerate:
		return r.modelTarget(c)
	case call.AgentStart:
		return r.agentTarget(c)
	}
	return gate.Target{}, fault.New(fault.NotFound, "this is a fault of AgentOS", "no target for action %.80q", c.Action)
}

func (r *Registry) toolTarget(c *call.Call) (gate.Target, error) {
	e, ok := r.tools[c.Resource]
	if !ok {
		return gate.Target{}, fault.New(fault.NotFound, "call one of the tools that tools/list returns", "there is no tool %.80q", c.Resource)
	}
	if len(c.Args) > e.desc.MaxArgs {
		return gate.Target{}, fault.New(fault.Limit, "send smaller arguments", "arguments have %d bytes, limit %d", len(c.Args), e.desc.MaxArgs)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Args))
	if err == nil {
		err = e.schema.Validate(doc)
	}
	if err != nil {
		return gate.Target{}, fault.New(fault.Usage, "see the tool's schema in tools/list", "arguments of %q don't fit its schema: %s", c.Resource, explain(err))
	}
	return gate.Target{
		Type: "Tool", Effect: string(e.desc.Effect), Local: true, Owner: c.Subject.Owner,
		Upper:    budget.Amount{budget.ToolCalls: 1},
		Deadline: e.desc.Deadline, MaxResult: e.desc.MaxResult,
		Label: label.Label{Integrity: label.Untrusted, Readers: readers(c)},
	}, nil
}

func (r *Registry) modelTarget(c *call.Call) (gate.Target, error) {
	m := r.cfg.Model
	if m.Backend == "" || c.Resource != m.Backend {
		return gate.Target{}, fault.New(fault.NotFound, "", "there is no model backend %.80q in this run", c.Resource)
	}
	var a ModelArgs
	if err := strict(c.Args, &a); err != nil {
		return gate.Target{}, err
	}
	if a.MaxOutput < 1 || a.MaxOutput > m.MaxOutput || a.Bytes < 1 || a.Bytes > chat.MaxRequestBytes {
		return gate.Target{}, fault.New(fault.Limit, "send a smaller request",
			"request of %d bytes with up to %d output tokens, limits %d and %d", a.Bytes, a.MaxOutput, chat.MaxRequestBytes, m.MaxOutput)
	}
	upper := budget.Amount{budget.ModelCall: 1}
	if m.Metered {
		upper[budget.Tokens] = modelcontext.TokenBound(a.Bytes) + int64(a.MaxOutput)
	}
	return gate.Target{
		Type: "Model", Effect: "generate", Local: m.Local, Owner: c.Subject.Owner, Upper: upper,
		Deadline: m.Timeout, MaxResult: chat.MaxResponseBytes,
		Label: label.Label{Integrity: label.Untrusted, Readers: readers(c)},
	}, nil
}

func (r *Registry) agentTarget(c *call.Call) (gate.Target, error) {
	if c.Resource != r.cfg.Agent {
		return gate.Target{}, fault.New(fault.NotFound, "configure it by agent.id", "there is no agent %.80q", c.Resource)
	}
	var a StartArgs
	if err := strict(c.Args, &a); err != nil {
		return gate.Target{}, err
	}
	return gate.Target{
		Type: "Agent", Effect: "start", Local: true, Owner: r.cfg.Owner,
		Deadline: 10 * time.Second, MaxResult: 64 << 10,
		Label: label.Label{Integrity: label.Trusted, Readers: readers(c)},
	}, nil
}

func readers(c *call.Call) []string { return []string{fmt.Sprintf("uid:%d", c.Subject.Owner)} }

func strict(doc []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fault.Wrap(err, fault.Usage, "", "arguments don't fit")
	}
	return nil
}

// explain renders a validation error as one line: the first leaf causes with
// their place. It repeats no more of the document than 200 bytes.
func explain(err error) string {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return fmt.Sprintf("%.200s", err)
	}
	var parts []string
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, c := range e.Causes {
			walk(c)
		}
		if len(e.Causes) == 0 && len(parts) < 3 {
			msg := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
			parts = append(parts, fmt.Sprintf("/%s: %.200s", strings.Join(e.InstanceLocation, "/"), msg))
		}
	}
	walk(v)
	return strings.Join(parts, "; ")
}
