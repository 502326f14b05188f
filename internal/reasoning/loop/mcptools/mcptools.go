// Package mcptools lets the loop call tools over one MCP connection.
//
// State owned: the MCP session, which lives as long as its connection. Imports: reasoning/loop, lib/chat,
// the MCP SDK. Imported by: cmd/agentos-loop. Portable; opens nothing, so it
// works in a process that can't. The client offers no capability: no roots, no
// sampling, no elicitation, so a server can't ask the loop for anything.
// Lock order: none. Invariants: one message is bounded (MaxMessage), so are the
// number of tools and their schemas. Tests: mcptools_test.go. Spec: OSA-01, AOS-06.
package mcptools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentos/internal/lib/chat"
	"agentos/internal/reasoning/loop"
)

// Limits in bytes.
const (
	MaxMessage     = 12 << 20  // one MCP message
	maxSchema      = 256 << 10 // one tool's schema
	maxDescription = 16 << 10
)

// Client implements loop.Tools. After List it is safe for concurrent use.
type Client struct {
	conn    io.ReadWriteCloser
	session *mcp.ClientSession // set by List
}

// New returns a client on conn, which it owns from now on; List shakes hands.
func New(conn io.ReadWriteCloser) *Client { return &Client{conn: conn} }

func (c *Client) connect(ctx context.Context) error {
	if c.session != nil {
		return nil
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "agentos-loop", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		Logger:       slog.New(slog.DiscardHandler),
	})
	s, err := client.Connect(ctx, &mcp.IOTransport{Reader: c.conn, Writer: c.conn, MaxLineLength: MaxMessage}, nil)
	if err != nil {
		return fmt.Errorf("connect tools: %w", err)
	}
	c.session = s
	return nil
}

// List returns the server's tools, chat.MaxTools at most.
func (c *Client) List(ctx context.Context) ([]loop.Tool, error) {
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	var out []loop.Tool
	for t, err := range c.session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("list tools: %w", err)
		}
		if len(out) == chat.MaxTools {
			return nil, fmt.Errorf("list tools: more than %d", chat.MaxTools)
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("list tools: schema of %.40q: %w", t.Name, err)
		}
		if t.Name == "" || len(t.Name) > chat.MaxNameLen || len(schema) > maxSchema || len(t.Description) > maxDescription {
			return nil, fmt.Errorf("list tools: name, description or schema of %.40q is empty or too long", t.Name)
		}
		out = append(out, loop.Tool{
			Tool:     chat.Tool{Name: t.Name, Description: t.Description, Schema: schema},
			ReadOnly: t.Annotations != nil && t.Annotations.ReadOnlyHint,
		})
	}
	return out, nil
}

// Call runs one call. A refusal of the protocol (unknown tool, bad parameters) is
// a result like any other; only a lost connection is an error.
func (c *Client) Call(ctx context.Context, name string, args json.RawMessage) (loop.ToolResult, error) {
	if c.session == nil {
		return loop.ToolResult{}, fmt.Errorf("call tool %.40q: not connected", name)
	}
	res, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	var refused *jsonrpc.Error
	switch {
	case err == nil:
	case ctx.Err() == nil && errors.As(err, &refused) && !errors.Is(err, mcp.ErrConnectionClosed):
		return loop.ToolResult{Text: "error: " + chat.Clean(refused.Message, 2048), Error: true}, nil
	default:
		return loop.ToolResult{}, fmt.Errorf("call tool %.40q: %w", name, err)
	}
	out := loop.ToolResult{Text: resultText(res), Error: res.IsError}
	if kind, _ := res.Meta["agentos/kind"].(string); kind == "limit" {
		out.Exhausted, _ = res.Meta["agentos/resource"].(string)
		if out.Exhausted == "" {
			out.Exhausted = "unknown"
		}
	}
	return out, nil
}

// resultText joins the text parts; what isn't text is named, so that the model
// knows that there was more. Without any part the structured content stands.
func resultText(res *mcp.CallToolResult) string {
	var parts []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, t.Text)
			continue
		}
		parts = append(parts, fmt.Sprintf("[%s left out]", strings.TrimPrefix(fmt.Sprintf("%T", c), "*mcp.")))
	}
	if len(parts) == 0 && res.StructuredContent != nil {
		if b, err := json.Marshal(res.StructuredContent); err == nil {
			return string(b)
		}
	}
	return strings.Join(parts, "\n")
}
