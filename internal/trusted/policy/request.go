package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of what a request may carry.
const (
	MaxArgsBytes = 1 << 20 // bytes of Request.Args
	MaxNameBytes = 256     // bytes of an agent's, tool's, model's or run's name
)

// Cedar types of the schema.
const (
	typeOwner types.EntityType = "Owner"
	typeAgent types.EntityType = "Agent"
	typeTool  types.EntityType = "Tool"
	typeModel types.EntityType = "Model"
)

// actions is the schema's appliesTo, for requests; a test compares the two.
var actions = [...]struct {
	name                string
	uid                 types.EntityUID
	principal, resource types.EntityType
}{
	{"agent.start", types.NewEntityUID("Action", "agent.start"), typeOwner, typeAgent},
	{"tool.call", types.NewEntityUID("Action", "tool.call"), typeAgent, typeTool},
	{"model.generate", types.NewEntityUID("Action", "model.generate"), typeAgent, typeModel},
}

// The attributes that tools and models can have; records are immutable and not
// cheap to make.
var (
	toolAttrs = map[string]types.Record{
		"read":  types.NewRecord(types.RecordMap{"effect": types.String("read")}),
		"write": types.NewRecord(types.RecordMap{"effect": types.String("write")}),
		"admin": types.NewRecord(types.RecordMap{"effect": types.String("admin")}),
	}
	modelAttrs = map[bool]types.Record{
		true:  types.NewRecord(types.RecordMap{"local": types.True}),
		false: types.NewRecord(types.RecordMap{"local": types.False}),
	}
)

// world is one request as Cedar sees it: every entity that it can reach.
type world struct {
	action                          types.EntityUID
	principal, resource             types.Entity
	principalParent, resourceParent types.EntityUID // zero when there is none
	args                            []byte          // a JSON object
	run                             string
	context                         types.Record // empty before withContext
}

// withContext checks the arguments and fills in context if it is wanted: most
// policies don't look at it, see candidates.context.
func (w *world) withContext(wanted bool) error {
	if !wanted {
		if err := checkArgs(w.args); err != nil {
			return fmt.Errorf("convert arguments: %w", err)
		}
		return nil
	}
	args, err := convertArgs(w.args)
	if err != nil {
		return fmt.Errorf("convert arguments: %w", err)
	}
	w.context = types.NewRecord(types.RecordMap{"args": args, "run": types.String(w.run)})
	return nil
}

// Get implements types.EntityGetter. Owners have no attributes and no parents,
// so it makes no difference whether they are found; when one exists it is.
func (w *world) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case w.principal.UID:
		return w.principal, true
	case w.resource.UID:
		return w.resource, true
	case w.principalParent, w.resourceParent:
		return types.Entity{UID: uid}, true
	}
	return types.Entity{}, false
}

func (w *world) request() types.Request {
	return types.Request{Principal: w.principal.UID, Action: w.action, Resource: w.resource.UID, Context: w.context}
}

// newWorld converts a request. Whatever the schema doesn't describe is an error,
// and so a denial.
func newWorld(r *Request) (*world, error) {
	i := 0
	for ; i < len(actions) && actions[i].name != r.Action; i++ {
	}
	if i == len(actions) {
		return nil, fmt.Errorf("action %.80q is not in the schema", r.Action)
	}
	w := &world{action: actions[i].uid}
	var err error
	if w.principal, w.principalParent, err = principal(&r.Principal); err != nil {
		return nil, fmt.Errorf("convert principal: %w", err)
	}
	if w.resource, w.resourceParent, err = resource(&r.Resource); err != nil {
		return nil, fmt.Errorf("convert resource: %w", err)
	}
	if got := w.principal.UID.Type; got != actions[i].principal {
		return nil, fmt.Errorf("action %q is for principals of type %s, not %s", r.Action, actions[i].principal, got)
	}
	if got := w.resource.UID.Type; got != actions[i].resource {
		return nil, fmt.Errorf("action %q is for resources of type %s, not %s", r.Action, actions[i].resource, got)
	}
	if len(r.Run) > MaxNameBytes || !utf8.ValidString(r.Run) {
		return nil, fmt.Errorf("run ID is longer than %d bytes or no text", MaxNameBytes)
	}
	w.args, w.run = r.Args, r.Run
	return w, nil
}

func ownerUID(uid uint32) types.EntityUID {
	return types.NewEntityUID(typeOwner, types.String("uid:"+strconv.FormatUint(uint64(uid), 10)))
}

func principal(p *Principal) (types.Entity, types.EntityUID, error) {
	if p.Agent == "" {
		return types.Entity{UID: ownerUID(p.Owner)}, types.EntityUID{}, nil
	}
	return agent(p.Agent, p.Trust, p.Owner)
}

func agent(name, trust string, owner uint32) (types.Entity, types.EntityUID, error) {
	if err := checkName(name); err != nil {
		return types.Entity{}, types.EntityUID{}, err
	}
	if !slices.Contains(closed["trust"], trust) {
		return types.Entity{}, types.EntityUID{}, fmt.Errorf("agent %q has unknown trust %.40q", name, trust)
	}
	o := ownerUID(owner)
	return types.Entity{
		UID:        types.NewEntityUID(typeAgent, types.String(name)),
		Parents:    types.NewEntityUIDSet(o),
		Attributes: types.NewRecord(types.RecordMap{"owner": o, "trust": types.String(trust)}),
	}, o, nil
}

func resource(r *Resource) (e types.Entity, parent types.EntityUID, err error) {
	if err := checkName(r.Name); err != nil {
		return e, parent, err
	}
	switch types.EntityType(r.Type) {
	case typeAgent:
		return agent(r.Name, r.Trust, r.Owner)
	case typeTool:
		var ok bool
		if e.Attributes, ok = toolAttrs[r.Effect]; !ok {
			return e, parent, fmt.Errorf("tool %q has unknown effect %.40q", r.Name, r.Effect)
		}
	case typeModel:
		e.Attributes = modelAttrs[r.Local]
	default:
		return e, parent, fmt.Errorf("type %.40q is not in the schema", r.Type)
	}
	e.UID = types.NewEntityUID(types.EntityType(r.Type), types.String(r.Name))
	return e, parent, nil
}

func checkName(name string) error {
	if name == "" || len(name) > MaxNameBytes || !utf8.ValidString(name) {
		return fmt.Errorf("name %.40q is empty, longer than %d bytes or no text", name, MaxNameBytes)
	}
	return nil
}

var errNotObject = errors.New("not a JSON object")

// checkArgs accepts what convertArgs accepts, without making anything of it.
func checkArgs(args []byte) error {
	if len(args) == 0 {
		return nil
	}
	v := jsontext.Value(args)
	if len(args) <= MaxArgsBytes && v.Kind() == jsontext.KindBeginObject && v.IsValid() {
		return nil
	}
	_, err := convertArgs(args) // knows what is wrong
	if err == nil {
		err = errors.New("not one JSON document")
	}
	return err
}

// convertArgs takes the members of a JSON object that are strings, booleans or
// integers of 64 bits. Others (null, fractions, lists, objects) are left out, so
// `context.args has NAME` is false for them. No bytes mean {}.
func convertArgs(args []byte) (types.Record, error) {
	if len(args) == 0 || string(args) == "{}" {
		return types.Record{}, nil
	}
	if len(args) > MaxArgsBytes {
		return types.Record{}, fmt.Errorf("%d bytes, limit %d", len(args), MaxArgsBytes)
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(args)) // reads a Buffer in place
	if t, err := d.ReadToken(); err != nil {
		return types.Record{}, err
	} else if t.Kind() != jsontext.KindBeginObject {
		return types.Record{}, errNotObject
	}
	m := types.RecordMap{}
	for d.PeekKind() == jsontext.KindString {
		t, err := d.ReadToken()
		if err != nil {
			return types.Record{}, err
		}
		name := types.String(t.String())
		v, err := convertScalar(d)
		if err != nil {
			return types.Record{}, err
		}
		if v != nil {
			m[name] = v
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return types.Record{}, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return types.Record{}, errors.New("more than one JSON document")
	}
	return types.NewRecord(m), nil
}

// convertScalar reads one value; nil for one that policies don't see.
func convertScalar(d *jsontext.Decoder) (types.Value, error) {
	switch d.PeekKind() {
	case jsontext.KindString, jsontext.KindTrue, jsontext.KindFalse, jsontext.KindNumber:
	default:
		return nil, d.SkipValue()
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case jsontext.KindString:
		return types.String(t.String()), nil
	case jsontext.KindNumber:
		n, err := strconv.ParseInt(t.String(), 10, 64)
		if err != nil {
			return nil, nil //nolint:nilerr // no integer: left out, see convertArgs
		}
		return types.Long(n), nil
	}
	return types.Boolean(t.Bool()), nil
}
