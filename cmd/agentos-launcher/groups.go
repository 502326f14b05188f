//go:build linux

package main

import (
	"agentos/internal/execution/jailer"
	"agentos/internal/host/cgroup"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// groups makes a sandbox's control groups by m.
func groups(m *cgroup.Manager) func(string, sandboxplan.Limits) (jailer.Groups, []string, error) {
	return func(run string, l sandboxplan.Limits) (jailer.Groups, []string, error) {
		g, missing, err := m.New(run, cgroup.Limits{PIDs: l.PIDs, MemoryBytes: l.MemoryBytes, CPUPercent: l.CPUPercent})
		if err != nil {
			return nil, nil, fault.Wrap(err, fault.Unavailable, "run `agentos doctor` to see this host's control groups", "limit sandbox %s", run)
		}
		return g, missing, nil
	}
}
