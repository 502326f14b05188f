package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"agentos/internal/lib/canon"
)

// Limits of one record; docs/spec/audit-record.md.
const (
	Version      = 1
	MaxRecord    = 64 << 10 // bytes of one encoded record
	MaxID        = 128      // bytes of run, call and agent IDs
	MaxBodyDepth = 32       // nested objects and arrays in the body
	MaxPayloads  = 16       // payloads of one entry
	MaxPayload   = 16 << 20 // bytes of one payload
	maxName      = 32       // bytes of a payload name
	maxMedia     = 128      // bytes of a payload media type
	maxSeq       = 1<<53 - 1
)

// timeLayout has a fixed width, so that a record has one encoding.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// ErrRecord is wrapped by every refusal to encode or decode a record.
var ErrRecord = errors.New("malformed audit record")

// Record is one leaf of the log. Body is a canonical JSON object; Payloads maps
// a payload's name to its commitment.
type Record struct {
	Seq              uint64
	At               time.Time
	Kind             Kind
	Run, Call, Agent string
	Owner            uint32
	Body             []byte
	Payloads         map[string]string
}

// NewRecord checks an entry and gives it a record without a sequence number.
// Commitments belong to e.Payloads, in order; see Commitment.
func NewRecord(e Entry, commitments []string) (Record, error) {
	r := Record{At: e.At.UTC(), Kind: e.Kind, Run: e.Run, Call: e.Call, Agent: e.Agent, Owner: e.Owner, Body: []byte("{}")}
	if e.Body != nil {
		b, err := json.Marshal(e.Body)
		if err == nil && !scanObject(b) {
			b, err = canon.Canonical(b)
		}
		if err != nil {
			return Record{}, fmt.Errorf("%w: encode body of %q: %w", ErrRecord, e.Kind, err)
		}
		r.Body = b
	}
	if len(commitments) != len(e.Payloads) {
		return Record{}, fmt.Errorf("%w: %d commitments for %d payloads", ErrRecord, len(commitments), len(e.Payloads))
	}
	if len(e.Payloads) > 0 {
		r.Payloads = make(map[string]string, len(e.Payloads))
	}
	for i, p := range e.Payloads {
		if _, dup := r.Payloads[p.Name]; dup {
			return Record{}, fmt.Errorf("%w: two payloads named %q", ErrRecord, p.Name)
		}
		r.Payloads[p.Name] = commitments[i]
	}
	return r, r.check()
}

// check refuses what Append could not encode in the one canonical way.
func (r Record) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", ErrRecord, fmt.Errorf(format, args...))
	}
	if !r.Kind.Valid() {
		return bad("unknown kind %q", r.Kind)
	}
	for _, id := range [...]struct{ name, id string }{{"run", r.Run}, {"call", r.Call}, {"agent", r.Agent}} {
		if !validID(id.id) {
			return bad("%s %.40q is not an ID of at most %d letters, digits and ._:@/-", id.name, id.id, MaxID)
		}
	}
	if r.Kind.OfCall() && r.Call == "" {
		return bad("%s without a call ID", r.Kind)
	}
	if r.Seq > maxSeq {
		return bad("sequence number %d too large", r.Seq)
	}
	if y := r.At.UTC().Year(); y < 1970 || y > 9999 {
		return bad("time %v out of range", r.At)
	}
	if len(r.Body) > MaxBody {
		return bad("body of %d bytes, limit %d", len(r.Body), MaxBody)
	}
	if len(r.Body) < 2 || r.Body[0] != '{' {
		return bad("body is not a JSON object")
	}
	if d := depth(r.Body); d > MaxBodyDepth {
		return bad("body nested %d levels deep, limit %d", d, MaxBodyDepth)
	}
	if len(r.Payloads) > MaxPayloads {
		return bad("%d payloads, limit %d", len(r.Payloads), MaxPayloads)
	}
	for name, c := range r.Payloads {
		if !validName(name) {
			return bad("payload name %.40q", name)
		}
		if !ValidCommitment(c) {
			return bad("commitment %.80q of payload %q", c, name)
		}
	}
	return nil
}

// Append appends the canonical encoding (RFC 8785: keys in order, all present).
// The record must come from NewRecord or Decode; Seq may have been set since.
func (r Record) Append(dst []byte) []byte {
	dst = append(dst, `{"agent":"`...)
	dst = append(dst, r.Agent...)
	dst = append(dst, `","at":"`...)
	dst = r.At.UTC().AppendFormat(dst, timeLayout)
	dst = append(dst, `","body":`...)
	dst = append(dst, r.Body...)
	dst = append(dst, `,"call":"`...)
	dst = append(dst, r.Call...)
	dst = append(dst, `","kind":"`...)
	dst = append(dst, r.Kind...)
	dst = append(dst, `","owner":`...)
	dst = strconv.AppendUint(dst, uint64(r.Owner), 10)
	dst = append(dst, `,"payloads":{`...)
	for i, name := range slices.Sorted(maps.Keys(r.Payloads)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":"`...)
		dst = append(dst, r.Payloads[name]...)
		dst = append(dst, '"')
	}
	dst = append(dst, `},"run":"`...)
	dst = append(dst, r.Run...)
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendUint(dst, r.Seq, 10)
	return append(dst, `,"v":1}`...)
}

// Encode checks the record and returns its one encoding.
func Encode(r Record) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	body, err := canon.Object(r.Body)
	if err != nil || !bytes.Equal(body, r.Body) {
		return nil, fmt.Errorf("%w: body is not canonical", ErrRecord)
	}
	return r.Append(nil), nil
}

// wire is the record as JSON; used only where the fast scanner hesitates.
type wire struct {
	Agent    string            `json:"agent"`
	At       string            `json:"at"`
	Body     json.RawMessage   `json:"body"`
	Call     string            `json:"call"`
	Kind     Kind              `json:"kind"`
	Owner    uint32            `json:"owner"`
	Payloads map[string]string `json:"payloads"`
	Run      string            `json:"run"`
	Seq      uint64            `json:"seq"`
	V        int               `json:"v"`
}

// Decode is strict: it accepts exactly the bytes that Encode produces. Unknown,
// missing or repeated fields, another version and any non-canonical byte are
// refused. b must not change while the record is in use.
func Decode(b []byte) (Record, error) {
	if h, ok := scan(b); ok {
		return h.record(), nil
	}
	return decodeStrict(b)
}

func decodeStrict(b []byte) (Record, error) {
	if len(b) > MaxRecord {
		return Record{}, fmt.Errorf("%w: %d bytes, limit %d", ErrRecord, len(b), MaxRecord)
	}
	c, err := canon.Object(b)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if !bytes.Equal(c, b) {
		return Record{}, fmt.Errorf("%w: not in canonical form", ErrRecord)
	}
	var w wire
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if w.V != Version {
		return Record{}, fmt.Errorf("%w: version %d, this program reads %d", ErrRecord, w.V, Version)
	}
	at, err := time.Parse(timeLayout, w.At)
	if err != nil {
		return Record{}, fmt.Errorf("%w: time %.40q", ErrRecord, w.At)
	}
	r := Record{Seq: w.Seq, At: at, Kind: w.Kind, Run: w.Run, Call: w.Call, Agent: w.Agent, Owner: w.Owner, Body: w.Body}
	if len(w.Payloads) > 0 {
		r.Payloads = w.Payloads
	}
	if err := r.check(); err != nil {
		return Record{}, err
	}
	if !bytes.Equal(r.Append(nil), b) {
		return Record{}, fmt.Errorf("%w: a field is missing or not in its one form", ErrRecord)
	}
	return r, nil
}
