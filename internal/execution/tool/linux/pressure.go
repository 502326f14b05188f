//go:build linux

package linux

import (
	"errors"
	"fmt"

	"github.com/prometheus/procfs"
)

type pressureDoc struct {
	CPU    *resourceDoc `json:"cpu,omitempty"`
	Memory *resourceDoc `json:"memory,omitempty"`
	IO     *resourceDoc `json:"io,omitempty"`
}

type resourceDoc struct {
	Some *stallDoc `json:"some,omitempty"`
	Full *stallDoc `json:"full,omitempty"`
}

type stallDoc struct {
	Avg10  float64 `json:"avg10"`
	Avg60  float64 `json:"avg60"`
	Avg300 float64 `json:"avg300"`
	Total  uint64  `json:"total_us"`
}

// readPressure reads pressure stall information
// (https://docs.kernel.org/accounting/psi.html). A kernel without it, or one
// booted with psi=0, makes the section unavailable.
func readPressure(h Host) (*pressureDoc, error) {
	p, err := procfs.NewFS(h.path("/proc"))
	if err != nil {
		return nil, err
	}
	d := &pressureDoc{}
	for name, to := range map[string]**resourceDoc{"cpu": &d.CPU, "memory": &d.Memory, "io": &d.IO} {
		s, err := p.PSIStatsForResource(name)
		if err != nil {
			return nil, fmt.Errorf("read %s pressure: %w", name, err)
		}
		r := &resourceDoc{}
		if r.Some, err = stall(s.Some); err != nil {
			return nil, fmt.Errorf("read %s pressure: %w", name, err)
		}
		if r.Full, err = stall(s.Full); err != nil {
			return nil, fmt.Errorf("read %s pressure: %w", name, err)
		}
		*to = r
	}
	return d, nil
}

func stall(l *procfs.PSILine) (*stallDoc, error) {
	if l == nil {
		return nil, nil
	}
	if err := finite(l.Avg10, l.Avg60, l.Avg300); err != nil {
		return nil, err
	}
	if l.Total > maxSafe {
		return nil, errors.New("value out of range")
	}
	return &stallDoc{l.Avg10, l.Avg60, l.Avg300, l.Total}, nil
}
