package mcptools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentos/internal/lib/chat"
	"agentos/internal/reasoning/loop"
)

// serve runs an MCP server with the given tools on one end of a pipe.
func serve(t *testing.T, tools map[string]mcp.ToolHandler) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	srv := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for name, h := range tools {
		srv.AddTool(&mcp.Tool{
			Name: name, Description: "does " + name, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: strings.HasPrefix(name, "read")},
		}, h)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Run(context.Background(), &mcp.IOTransport{Reader: theirs, Writer: theirs})
	}()
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close(); <-done })
	return New(ours)
}

func says(parts ...mcp.Content) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: parts}, nil
	}
}

func TestListAndCall(t *testing.T) {
	t.Parallel()
	c := serve(t, map[string]mcp.ToolHandler{
		"read": func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "got " + string(r.Params.Arguments)}}}, nil
		},
		"mixed": says(&mcp.TextContent{Text: "a"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("x")}, &mcp.TextContent{Text: "b"}),
		"structured": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{StructuredContent: map[string]any{"k": 1}}, nil
		},
		"fails": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "denied at policy: no"}}}, nil
		},
		"limit": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"agentos/kind": "limit", "agentos/resource": "tool_calls"}}, nil
		},
		"protocol": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32000, Message: "no\x1b[0m way"}
		},
	})
	list, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 6 {
		t.Fatalf("%d tools", len(list))
	}
	for _, tl := range list {
		if tl.ReadOnly != (tl.Name == "read") || !strings.Contains(string(tl.Schema), `"integer"`) || tl.Description != "does "+tl.Name {
			t.Errorf("%+v", tl)
		}
	}
	for name, want := range map[string]loop.ToolResult{
		"read":       {Text: `got {"n":1}`},
		"mixed":      {Text: "a\n[ImageContent left out]\nb"},
		"structured": {Text: `{"k":1}`},
		"fails":      {Text: "denied at policy: no", Error: true},
		"limit":      {Error: true, Exhausted: "tool_calls"},
		"protocol":   {Text: "error: no [0m way", Error: true},
		"unknown":    {Text: `error: unknown tool "unknown"`, Error: true},
	} {
		got, err := c.Call(t.Context(), name, json.RawMessage(`{"n":1}`))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestLostConnection(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	c := New(ours)
	if _, err := c.Call(t.Context(), "x", nil); err == nil {
		t.Error("call before list: no error")
	}
	if _, err := c.List(t.Context()); err == nil {
		t.Error("list on a dead connection: no error")
	}
	var die *Client
	die = serve(t, map[string]mcp.ToolHandler{"die": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = die.conn.Close()
		return &mcp.CallToolResult{}, nil
	}})
	if _, err := die.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := die.Call(t.Context(), "die", json.RawMessage(`{}`)); err == nil {
		t.Errorf("lost in a call: %+v", got)
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	c := serve(t, map[string]mcp.ToolHandler{"hang": func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := c.Call(ctx, "hang", json.RawMessage(`{}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A server that sends a line without end, or too many tools, is cut off.
func TestBounds(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		chunk := []byte(strings.Repeat("a", 1<<20))
		for {
			if _, err := theirs.Write(chunk); err != nil {
				return
			}
		}
	}()
	if _, err := New(ours).List(t.Context()); err == nil {
		t.Error("endless line: no error")
	}
	_ = ours.Close()
	many := map[string]mcp.ToolHandler{}
	for i := range chat.MaxTools + 1 {
		many["t"+strings.Repeat("x", i)] = says()
	}
	if _, err := serve(t, many).List(t.Context()); err == nil || !strings.Contains(err.Error(), "list tools") {
		t.Errorf("too many tools: %v", err)
	}
}
