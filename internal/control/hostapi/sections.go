//go:build linux

package hostapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/host/probe"
	"agentos/internal/lib/fault"
)

// Kernel reports the host and what its kernel offers. The facts inform: what
// they mean for a run is the isolation section's.
func Kernel(raw func() probe.Raw) Section {
	return func(context.Context) *pb.DoctorSection {
		s := &pb.DoctorSection{Name: "host"}
		for _, f := range raw().Facts() {
			state := f.State
			if state == probe.Reduced {
				state = probe.Info // counted once, as the layer that it weakens
			}
			s.Items = append(s.Items, &pb.DoctorItem{Name: f.Name, State: string(state), Value: f.Value, Detail: f.Detail, Next: f.Next})
		}
		return s
	}
}

// Isolation reports each layer that confines a run on this host.
func Isolation(raw func() probe.Raw, root bool) Section {
	return func(context.Context) *pb.DoctorSection {
		i := raw().Strength(root)
		s := &pb.DoctorSection{Name: "isolation of a run"}
		for _, l := range i.Layers {
			s.Items = append(s.Items, &pb.DoctorItem{Name: l.Name, State: string(l.State), Detail: l.Detail})
		}
		s.Items = append(s.Items, &pb.DoctorItem{Name: "strength", State: verdictState(i.Verdict), Value: i.Verdict, Detail: i.Summary})
		return s
	}
}

func verdictState(v string) string {
	switch v {
	case "full":
		return "ok"
	case "reduced":
		return "reduced"
	}
	return "unsafe"
}

// Check is one thing that can be had or not.
type Check struct {
	Name string
	// Look returns a short value and a detail. An error is shown with its next
	// step: a fault of kind NotFound or Unavailable as absent, others as unsafe.
	Look func(context.Context) (value, detail string, err error)
	// Optional things are reported as absent without judging the host.
	Optional bool
}

// Checks is a section made of checks.
func Checks(name string, checks ...Check) Section {
	return func(ctx context.Context) *pb.DoctorSection {
		s := &pb.DoctorSection{Name: name}
		for _, c := range checks {
			s.Items = append(s.Items, c.item(ctx))
		}
		return s
	}
}

func (c Check) item(ctx context.Context) *pb.DoctorItem {
	value, detail, err := c.Look(ctx)
	it := &pb.DoctorItem{Name: c.Name, State: "ok", Value: value, Detail: detail}
	if err == nil {
		return it
	}
	it.Detail, it.Next = strings.TrimSpace(fmt.Sprintf("%s %s", err.Error(), detail)), fault.NextOf(err)
	var f *fault.Error
	switch {
	case errors.As(err, &f) && (f.Kind == fault.NotFound || f.Kind == fault.Unavailable):
		it.State = "absent"
		if !c.Optional {
			it.State = "reduced"
		}
	default:
		it.State = "unsafe"
	}
	return it
}
