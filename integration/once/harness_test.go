//go:build linux

// Package once drives `agentos agent once` on the built binaries, and what reads
// its record.
package once

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentos/integration/person"
	"agentos/internal/execution/model/modeltest"
	"agentos/internal/lib/chat"
)

var bin string

func TestMain(m *testing.M) { os.Exit(person.Main(m, &bin)) }

// asked is a person who runs the built-in agent.
type asked struct{ *person.Person }

func as(t *testing.T, f func(t *testing.T, p *asked)) {
	t.Helper()
	person.Everybody(t, bin, func(t *testing.T, p *person.Person) { f(t, &asked{p}) })
}

func user(t *testing.T) *asked { return &asked{person.User(t, bin)} }

// events runs once --json and returns the events and the last one.
func (p *asked) events(code int, goal string) (all []map[string]any, ended map[string]any) {
	p.T.Helper()
	r := p.Do("--json", "agent", "once", goal)
	if r.Code != code {
		p.T.Fatalf("once %q: want exit %d, got %v", goal, code, r)
	}
	for line := range strings.Lines(r.Out) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.T.Fatalf("line %q: %v", line, err)
		}
		all = append(all, e)
		if x, ok := e["ended"].(map[string]any); ok {
			ended = x
		}
	}
	if ended == nil {
		p.T.Fatalf("no ended event in %v", r)
	}
	return all, ended
}

// model serves a script on a socket of the person's and configures it.
func (p *asked) model(s modeltest.Script) *modeltest.Server {
	p.T.Helper()
	dir := filepath.Join(p.Home, "m")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.T.Fatal(err)
	}
	path := filepath.Join(dir, "model.sock")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		p.T.Fatal(err)
	}
	for _, f := range []string{dir, path} {
		if os.Getuid() == 0 {
			if err := os.Chown(f, int(p.UID), int(p.UID)); err != nil {
				p.T.Fatal(err)
			}
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		p.T.Fatal(err)
	}
	srv := modeltest.NewServer(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = srv.Serve(ctx, l); close(done) }()
	p.T.Cleanup(func() { cancel(); <-done })
	p.Env = append(p.Env, "AGENTOS_MODEL_SOCKET="+path)
	return srv
}

func say(text string) modeltest.Turn {
	return modeltest.Turn{Response: &chat.Response{
		Message: chat.Message{Role: chat.Assistant, Text: text}, Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 100, OutputTokens: 10},
	}}
}

func callTool(id, name, args string) modeltest.Turn {
	return modeltest.Turn{Response: &chat.Response{
		Message: chat.Message{Role: chat.Assistant, ToolCalls: []chat.ToolCall{{ID: id, Name: name, Arguments: args}}},
		Stop:    chat.StopToolCalls, Usage: chat.Usage{InputTokens: 100, OutputTokens: 10},
	}}
}
