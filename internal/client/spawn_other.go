//go:build !linux

package client

import (
	"context"
	"time"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
)

// Spawn starts an agentosd for each session; on Linux only.
type Spawn struct {
	Dirs  []string
	Grace time.Duration
}

// Connect refuses: agentosd runs on Linux only.
func (s *Spawn) Connect(context.Context, []setting.Set) (*Session, error) {
	return nil, fault.New(fault.Unavailable, "run agentos on the Linux machine that the agent works on", "start agentosd: it runs on Linux only")
}

// Shared is the same.
func (s *Spawn) Shared() Connector { return s }

// Kill has nothing to end.
func (s *Spawn) Kill() {}
