package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentos/internal/api/gatewire"
)

// maxLine bounds one MCP message in bytes. It lies above the largest argument
// document that the gate's wire takes, so that what is merely too large gets a
// typed refusal instead of a closed connection.
const maxLine = gatewire.MaxMessage

// serveMCP is the agent's tool endpoint. The server knows the tools only to
// list them: every tools/call, of a known tool or not, becomes a proposal.
func (s *session) serveMCP(ctx context.Context) error {
	srv := mcp.NewServer(&mcp.Implementation{Name: "agentos", Version: "1"}, &mcp.ServerOptions{
		Logger: slog.New(slog.DiscardHandler),
	})
	for _, t := range s.hello.Tools {
		var schema map[string]any
		if err := json.Unmarshal([]byte(t.Schema), &schema); err != nil || schema["type"] != "object" {
			return fmt.Errorf("offer tool %q: its schema is no object schema", t.Name)
		}
		srv.AddTool(&mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: schema,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.ReadOnly}}, s.tool)
	}
	srv.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if r, ok := req.(*mcp.CallToolRequest); ok && method == "tools/call" {
				return s.tool(ctx, r)
			}
			return next(ctx, method, req)
		}
	})
	// An agent that breaks its connection ends its own use of tools, not the run.
	_ = srv.Run(ctx, &mcp.IOTransport{Reader: s.mcp, Writer: s.mcp, MaxLineLength: maxLine})
	return nil
}

// tool proposes one call and waits for its answer.
func (s *session) tool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id, p, err := s.gate.propose(cancel)
	if err != nil {
		return nil, err
	}
	if err := s.gate.send(gatewire.Up{Tool: &gatewire.Tool{ID: id, Name: clip(req.Params.Name, 256)}}, req.Params.Arguments); err != nil {
		return nil, err
	}
	var r reply
	select {
	case r = <-p.answer:
	case <-ctx.Done():
		_ = s.gate.send(gatewire.Up{Cancel: &gatewire.Cancel{ID: id}}, nil)
		r = <-p.answer // the gate answers every proposal, and the wire's end does too
	}
	if r.err != nil {
		return nil, r.err
	}
	return toolResult(r), nil
}

// toolResult renders an answer for an MCP client: the result document as text,
// or a refusal that says what to do next. IDs and labels go into _meta.
func toolResult(r reply) *mcp.CallToolResult {
	out := &mcp.CallToolResult{Meta: mcp.Meta{"agentos/call": r.Call, "agentos/status": r.Status, "agentos/label": r.Label}}
	text := string(r.blob)
	switch {
	case r.Denied != nil:
		out.IsError = true
		out.Meta["agentos/stage"], out.Meta["agentos/kind"], out.Meta["agentos/resource"] = r.Denied.Stage, r.Denied.Kind, r.Denied.Resource
		text = fmt.Sprintf("denied at %s: %s", r.Denied.Stage, r.Denied.Reason)
		if r.Denied.Next != "" {
			text += "\nnext: " + r.Denied.Next
		}
	case r.Status != "ok":
		out.IsError = true
		text = fmt.Sprintf("%s: %s", r.Status, r.Reason)
	}
	out.Content = []mcp.Content{&mcp.TextContent{Text: text}}
	return out
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
