package sandboxplan

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"agentos/internal/lib/fault"
)

// Bounds of what goes to and comes from agentos-probe.
const (
	MaxProbe    = 4 << 20 // bytes of one document, either way
	MaxAbsent   = 256     // paths
	MaxFindings = 8192
)

// Probe is what agentos-probe is asked: hold this plan against the kernel.
type Probe struct {
	Version int      `json:"version"` // Version
	Plan    Plan     `json:"plan"`
	Absent  []string `json:"absent"` // of the host, that the sandbox must not reach
}

// Finding is the answer to one question. Agree says that Plan and Kernel are the
// same text.
type Finding struct {
	Check  string `json:"check"`
	Plan   string `json:"plan"`   // what the plan says
	Kernel string `json:"kernel"` // what the kernel did
	Agree  bool   `json:"agree"`
	Detail string `json:"detail"` // how it was seen
}

// ReadProbe reads one document, at most MaxProbe bytes, without unknown members
// and with a plan that passes Check. Errors are faults.
func ReadProbe(r io.Reader) (Probe, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxProbe+1))
	if err != nil {
		return Probe{}, fault.Wrap(err, fault.Unavailable, "try again", "read probe")
	}
	var p Probe
	if err := strict(b, &p); err != nil {
		return Probe{}, fault.Wrap(err, fault.Usage, "use agentos sandbox probe, which writes it", "read probe")
	}
	if p.Version != Version {
		return Probe{}, fault.New(fault.Conflict, "use the same version of every AgentOS program", "read probe: version %d, not %d", p.Version, Version)
	}
	if len(p.Absent) > MaxAbsent {
		return Probe{}, fault.New(fault.Limit, "name fewer", "read probe: %d absent paths, at most %d", len(p.Absent), MaxAbsent)
	}
	for _, a := range p.Absent {
		if err := CheckPath(a); err != nil {
			return Probe{}, err
		}
	}
	return p, p.Plan.Check()
}

// ReadFindings reads the answer of agentos-probe, which ran where an agent runs:
// at most MaxProbe bytes and MaxFindings, at least one, each of which agrees
// exactly if its two texts do. Errors are faults.
func ReadFindings(b []byte) ([]Finding, error) {
	var out []Finding
	const next = "use the same version of every AgentOS program"
	if err := strict(b, &out); err != nil {
		return nil, fault.Wrap(err, fault.Internal, next, "read findings")
	}
	if len(out) == 0 || len(out) > MaxFindings {
		return nil, fault.New(fault.Internal, next, "read findings: %d of them", len(out))
	}
	for _, f := range out {
		if f.Check == "" || f.Plan == "" || f.Kernel == "" || f.Agree != (f.Plan == f.Kernel) {
			return nil, fault.New(fault.Internal, next, "read findings: %q contradicts itself", clip(f.Check))
		}
		if max(len(f.Check), len(f.Plan), len(f.Kernel), len(f.Detail)) > 2*maxPath {
			return nil, fault.New(fault.Internal, next, "read findings: %q is too long", clip(f.Check))
		}
	}
	return out, nil
}

// strict decodes exactly one JSON value.
func strict(b []byte, into any) error {
	if len(b) > MaxProbe {
		return errors.New("the document is too long")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}
