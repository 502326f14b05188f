//go:build linux

// Package once drives the built binaries as a person would: `agentos agent once`
// and what reads its record, as root and as an ordinary user.
package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/internal/execution/model/modeltest"
	"agentos/internal/lib/chat"
)

// bin is where TestMain built the product.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "agentos-once-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// The ordinary user of these tests must reach the programs.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = dir
	build := exec.Command("go", "build", "-o", dir, "agentos/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// person runs the product under one identity with a home of their own.
type person struct {
	t    *testing.T
	name string
	uid  uint32
	home string
	env  []string
}

// as runs f as root, when the tests run as root, and as an ordinary user.
func as(t *testing.T, f func(t *testing.T, p *person)) {
	t.Helper()
	uids := map[string]uint32{"user": uint32(os.Getuid())}
	if os.Getuid() == 0 {
		uids = map[string]uint32{"root": 0, "user": 4321}
	}
	for name, uid := range uids {
		t.Run(name, func(t *testing.T) { f(t, newPerson(t, name, uid)) })
	}
}

func asRoot(t *testing.T) *person {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	return newPerson(t, "root", 0)
}

func newPerson(t *testing.T, name string, uid uint32) *person {
	t.Helper()
	home, err := os.MkdirTemp("", "agentos-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if os.Getuid() == 0 {
		if err := os.Chown(home, int(uid), int(uid)); err != nil {
			t.Fatal(err)
		}
	}
	return &person{t: t, name: name, uid: uid, home: home}
}

func (p *person) state() string { return filepath.Join(p.home, ".local", "share", "agentos") }

func (p *person) cmd(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(bin, "agentos"), args...)
	c.Dir = p.home
	c.Env = append([]string{"HOME=" + p.home, "PATH=/usr/bin:/bin", "NO_COLOR=1"}, p.env...)
	if os.Getuid() == 0 && p.uid != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.uid, Gid: p.uid}}
	}
	c.WaitDelay = 10 * time.Second
	return c
}

type result struct {
	code     int
	out, err string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d\n--- stdout, its end\n%s\n--- stderr\n%s", r.code, r.out[max(0, len(r.out)-3000):], r.err)
}

// do runs one command to its end.
func (p *person) do(args ...string) result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	c := p.cmd(ctx, args...)
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr = &out, &errb
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("agentos %q: %v", args, err)
	}
	return result{c.ProcessState.ExitCode(), out.String(), errb.String()}
}

// want runs one command and requires its exit code and texts in its output.
func (p *person) want(code int, texts []string, args ...string) result {
	p.t.Helper()
	r := p.do(args...)
	if r.code != code {
		p.t.Fatalf("agentos %q: want exit %d, got %v", args, code, r)
	}
	for _, s := range texts {
		if !strings.Contains(r.out+r.err, s) {
			p.t.Errorf("agentos %q: no %q in %v", args, s, r)
		}
	}
	return r
}

// events runs once --json and returns the events and the last one.
func (p *person) events(code int, goal string) (all []map[string]any, ended map[string]any) {
	p.t.Helper()
	r := p.do("--json", "agent", "once", goal)
	if r.code != code {
		p.t.Fatalf("once %q: want exit %d, got %v", goal, code, r)
	}
	for line := range strings.Lines(r.out) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, e)
		if x, ok := e["ended"].(map[string]any); ok {
			ended = x
		}
	}
	if ended == nil {
		p.t.Fatalf("no ended event in %v", r)
	}
	return all, ended
}

// record is one line of `audit log --json`.
type record struct {
	Seq  json.Number    `json:"seq"`
	Kind string         `json:"kind"`
	Run  string         `json:"run"`
	Call string         `json:"call"`
	Body map[string]any `json:"body"`
}

func (p *person) log() []record {
	p.t.Helper()
	r := p.want(0, nil, "--json", "audit", "log", "--limit", "0")
	var out []record
	for line := range strings.Lines(r.out) {
		var rec record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			p.t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, rec)
	}
	return out
}

// paired checks INV-01 on the whole log: every intent has exactly one outcome,
// later than it, and every denial is both.
func (p *person) paired() {
	p.t.Helper()
	intents, outcomes := map[string]int{}, map[string]int{}
	for _, r := range p.log() {
		switch r.Kind {
		case "call.intent":
			intents[r.Call]++
		case "call.outcome":
			if intents[r.Call] == 0 {
				p.t.Errorf("outcome of %s before its intent", r.Call)
			}
			outcomes[r.Call]++
		}
	}
	for c, n := range intents {
		if n != 1 || outcomes[c] != 1 {
			p.t.Errorf("call %s: %d intents, %d outcomes", c, n, outcomes[c])
		}
	}
	p.want(0, nil, "audit", "verify")
}

// model serves a script on a socket of the person's and configures it.
func (p *person) model(s modeltest.Script) *modeltest.Server {
	p.t.Helper()
	dir := filepath.Join(p.home, "m")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	path := filepath.Join(dir, "model.sock")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range []string{dir, path} {
		if os.Getuid() == 0 {
			if err := os.Chown(f, int(p.uid), int(p.uid)); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		p.t.Fatal(err)
	}
	srv := modeltest.NewServer(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = srv.Serve(ctx, l); close(done) }()
	p.t.Cleanup(func() { cancel(); <-done })
	p.env = append(p.env, "AGENTOS_MODEL_SOCKET="+path)
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
