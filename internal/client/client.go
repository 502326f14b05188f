// Package client gives programs the control API of AgentOS: it finds an
// agentosd, connects and hands out one client per service. This version starts
// an agentosd for each session; a daemon's Unix socket will be a second
// Connector.
//
// State owned: the started agentosd process of a session. Imports: api,
// lib/fault, lib/setting, connect. Imported by: cli, cmd/agentos. Locks:
// Spawn.mu guards the list of live processes, a leaf. Invariants: a Session
// that Close returned from has left no process behind; agentosd gets no
// terminal and its own process group, so a Ctrl-C reaches only the client.
// Tests: client_test.go with the test binary as agentosd.
package client

import (
	"context"
	"net/http"

	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/api/wire"
	"agentos/internal/lib/setting"

	"connectrpc.com/connect"
)

// maxMessage bounds one message from agentosd in bytes.
const maxMessage = 16 << 20

// Connector opens sessions with an agentosd that uses the given settings.
type Connector interface {
	// Connect returns faults. ctx bounds the start; Close ends the session.
	Connect(ctx context.Context, sets []setting.Set) (*Session, error)
}

// Session is one connection to agentosd. Safe for concurrent use, except Close.
type Session struct {
	Agent  agentosv1connect.AgentServiceClient
	Audit  agentosv1connect.AuditServiceClient
	Policy agentosv1connect.PolicyServiceClient
	Host   agentosv1connect.HostServiceClient
	Run    agentosv1connect.RunServiceClient

	peer peer
}

// peer is how a session ends and why a call may have failed.
type peer interface {
	// explain turns an API error into the fault that a person should see.
	explain(err error) error
	close() error
}

func newSession(h *http.Client, p peer) *Session {
	opts := []connect.ClientOption{connect.WithReadMaxBytes(maxMessage)}
	return &Session{
		Agent:  agentosv1connect.NewAgentServiceClient(h, wire.BaseURL, opts...),
		Audit:  agentosv1connect.NewAuditServiceClient(h, wire.BaseURL, opts...),
		Policy: agentosv1connect.NewPolicyServiceClient(h, wire.BaseURL, opts...),
		Host:   agentosv1connect.NewHostServiceClient(h, wire.BaseURL, opts...),
		Run:    agentosv1connect.NewRunServiceClient(h, wire.BaseURL, opts...),
		peer:   p,
	}
}

// Explain turns an error of a call into a fault; when agentosd died, into what
// it said before. nil stays nil.
func (s *Session) Explain(err error) error {
	if err == nil {
		return nil
	}
	return s.peer.explain(err)
}

// Close hangs up and waits until agentosd has recorded what it has to and has
// ended. The error is a fault: agentosd failed or had to be killed.
func (s *Session) Close() error { return s.peer.close() }
