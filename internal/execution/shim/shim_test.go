//go:build linux

package shim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentos/internal/api/gatewire"
	"agentos/internal/execution/model"
	"agentos/internal/host/fdframe"
	"agentos/internal/lib/chat"
)

// fixture is a shim with the test on all its other sides: gate, agent, model.
type fixture struct {
	t    *testing.T
	gate *fdframe.Conn
	mcp  net.Conn
	chat net.Conn
	out  *os.File
	http *http.Transport
	done chan error
	used chan net.Conn // the connection that the backend dialled, or nil
}

// backendFunc is a model.Backend that tells which connection it got.
type backendFunc struct {
	dial model.Dialer
	f    *fixture
	gen  func(ctx context.Context, req chat.Request, sink func(string)) (chat.Response, error)
}

func (b backendFunc) Name() string { return "socket" }
func (b backendFunc) Generate(ctx context.Context, req chat.Request, sink func(string)) (chat.Response, error) {
	c, err := b.dial.Dial(ctx)
	if err != nil {
		c = nil
	}
	b.f.used <- c
	return b.gen(ctx, req, sink)
}

func ends(t *testing.T) (net.Conn, *os.File) {
	t.Helper()
	a, b, err := fdframe.Pair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := fdframe.Inherited(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, b
}

func start(t *testing.T, hello gatewire.Hello, gen func(context.Context, chat.Request, func(string)) (chat.Response, error)) *fixture {
	t.Helper()
	f := &fixture{t: t, done: make(chan error, 1), used: make(chan net.Conn, 16)}
	gateConn, shimEnd := ends(t)
	u, ok := gateConn.(*net.UnixConn)
	if !ok {
		t.Fatal("not a unix connection")
	}
	f.gate = fdframe.New(u, gatewire.MaxMessage)
	wire, err := fdframe.Inherited(shimEnd)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		f.done <- Run(context.Background(), Deps{
			Wire: fdframe.New(wire, gatewire.MaxMessage),
			Conn: func(f *os.File) (net.Conn, error) { return fdframe.Inherited(f) },
			Backend: func(_ gatewire.Hello, _ io.Reader, d model.Dialer) (model.Backend, error) {
				return backendFunc{d, f, gen}, nil
			},
			Ready: gatewire.Ready{LandlockABI: 7},
		})
	}()
	if m, _ := f.recv(); m.Ready == nil || m.Ready.LandlockABI != 7 {
		t.Fatalf("first message %+v", m)
	}
	var mcpFar, chatFar *os.File
	f.mcp, mcpFar = ends(t)
	f.chat, chatFar = ends(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f.out = w
	f.send(gatewire.Down{Hello: &hello}, nil, mcpFar, chatFar, r)
	for _, x := range []*os.File{mcpFar, chatFar, r} {
		x.Close()
	}
	t.Cleanup(f.stop)
	return f
}

// stop ends the run as the gate's process does, and checks that the shim ends.
func (f *fixture) stop() {
	f.gate.Close()
	f.out.Close()
	select {
	case err := <-f.done:
		if err != nil {
			f.t.Errorf("shim ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		f.t.Error("shim did not end with its wire")
	}
}

func (f *fixture) send(m gatewire.Down, blob []byte, files ...*os.File) {
	f.t.Helper()
	b, err := gatewire.EncodeDown(m, blob)
	if err == nil {
		err = f.gate.Write(b, files...)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) recv() (gatewire.Up, []byte) {
	f.t.Helper()
	b, _, err := f.gate.Read()
	if err != nil {
		f.t.Fatal(err)
	}
	m, blob, err := gatewire.DecodeUp(b)
	if err != nil {
		f.t.Fatal(err)
	}
	return m, blob
}

func (f *fixture) session() *mcp.ClientSession {
	f.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	s, err := c.Connect(f.t.Context(), &mcp.IOTransport{Reader: f.mcp, Writer: f.mcp}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

var oneTool = gatewire.Hello{
	Backend: "socket", Model: "m", MaxOutput: 50,
	Tools: []gatewire.ToolInfo{{Name: "look", Description: "d", Schema: `{"type":"object"}`, ReadOnly: true}},
}

func TestToolsAreProposals(t *testing.T) {
	f := start(t, oneTool, nil)
	s := f.session()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || !list.Tools[0].Annotations.ReadOnlyHint {
		t.Fatalf("%+v %v", list, err)
	}
	for _, tc := range []struct {
		name   string
		answer gatewire.Answer
		blob   string
		isErr  bool
		text   string
	}{
		{"look", gatewire.Answer{Status: "ok", Call: "call-1", Label: "untrusted"}, `{"x":1}`, false, `{"x":1}`},
		{"look", gatewire.Answer{Status: "error", Reason: "broke"}, ``, true, "broke"},
		{"look", gatewire.Answer{Status: "denied", Denied: &gatewire.Denied{Stage: "policy", Kind: "denied", Reason: "why", Next: "do this"}}, ``, true, "denied at policy: why\nnext: do this"},
		{"no_such_tool", gatewire.Answer{Status: "denied", Denied: &gatewire.Denied{Stage: "schema", Reason: "no tool"}}, ``, true, "no tool"},
	} {
		go func() {
			m, args := f.recv()
			if m.Tool == nil || m.Tool.Name != tc.name || string(args) != `{"k":"<v>"}` {
				t.Errorf("proposal %+v %s", m, args)
				return
			}
			tc.answer.ID = m.Tool.ID
			f.send(gatewire.Down{Answer: &tc.answer}, []byte(tc.blob))
		}()
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tc.name, Arguments: map[string]any{"k": "<v>"}})
		if err != nil {
			t.Fatal(tc.name, err)
		}
		text, _ := res.Content[0].(*mcp.TextContent)
		if res.IsError != tc.isErr || text == nil || !strings.Contains(text.Text, tc.text) {
			t.Errorf("%s: %+v %+v", tc.name, res, text)
		}
	}
}

func (f *fixture) post(body string) (int, string) {
	f.t.Helper()
	req, err := http.NewRequest("POST", "http://model/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if f.http == nil {
		f.http = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return f.chat, nil }}
	}
	resp, err := f.http.RoundTrip(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const hi = `{"model":"anything","messages":[{"role":"user","content":"hi"}],"max_tokens":4000}`

func answerOK(context.Context, chat.Request, func(string)) (chat.Response, error) {
	return chat.Response{Message: chat.Message{Role: chat.Assistant, Text: "hello"}, Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 3, OutputTokens: 2}}, nil
}

// TestModelCallNeedsBegin: the backend runs only after Begin, with the very
// connection that came with it, and the agent is answered only after Answer.
func TestModelCallNeedsBegin(t *testing.T) {
	var got chat.Request
	f := start(t, oneTool, func(ctx context.Context, r chat.Request, s func(string)) (chat.Response, error) {
		got = r
		return answerOK(ctx, r, s)
	})
	type answer struct {
		code int
		body string
	}
	answered := make(chan answer, 1)
	go func() { c, b := f.post(hi); answered <- answer{c, b} }()
	m, request := f.recv()
	if m.Model == nil || m.Model.MaxOutput != 50 || !bytes.Contains(request, []byte(`"max_output_tokens":50`)) {
		t.Fatalf("proposal %+v %s", m, request)
	}
	select {
	case <-f.used:
		t.Fatal("the backend ran before the call was admitted")
	case <-time.After(50 * time.Millisecond):
	}
	theirs, mine := ends(t)
	f.send(gatewire.Down{Begin: &gatewire.Begin{ID: m.Model.ID, Call: "call-7"}}, nil, mine)
	mine.Close()
	conn := <-f.used
	if conn == nil {
		t.Fatal("no connection for the admitted call")
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := io.ReadFull(theirs, one); err != nil {
		t.Error("the connection is another one")
	}
	done, resp := f.recv()
	if done.ModelDone == nil || done.ModelDone.Status != "ok" || done.ModelDone.OutputTokens != 2 || !bytes.Contains(resp, []byte("hello")) {
		t.Fatalf("%+v %s", done, resp)
	}
	select {
	case <-answered:
		t.Fatal("the agent was answered before the outcome was recorded")
	case <-time.After(50 * time.Millisecond):
	}
	f.send(gatewire.Down{Answer: &gatewire.Answer{ID: m.Model.ID, Status: "ok"}}, nil)
	if a := <-answered; a.code != 200 || !strings.Contains(a.body, "hello") {
		t.Errorf("%+v", a)
	}
	if got.MaxOutputTokens != 50 || got.Model != "m" {
		t.Errorf("request to the backend: %+v", got)
	}
}

func TestModelRefusalsAndFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		answer *gatewire.Answer
		genErr error
		code   int
		text   string
	}{
		"denied":    {&gatewire.Answer{Status: "denied", Denied: &gatewire.Denied{Stage: "policy", Kind: "denied", Reason: "no"}}, nil, 403, "denied_policy"},
		"budget":    {&gatewire.Answer{Status: "denied", Denied: &gatewire.Denied{Stage: "budget", Kind: "limit", Reason: "spent", Resource: "tokens"}}, nil, 429, "budget_tokens"},
		"malformed": {nil, &model.Error{Reason: model.ReasonMalformed, Msg: "junk"}, 502, `"malformed"`},
		"goal":      {nil, &model.Error{Reason: model.ReasonNotUnderstood, Msg: "what?"}, 502, `"not_understood"`},
		"other":     {nil, errors.New("odd"), 502, "server_error"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, oneTool, func(context.Context, chat.Request, func(string)) (chat.Response, error) {
				return chat.Response{}, tc.genErr
			})
			go func() {
				m, _ := f.recv()
				a := gatewire.Answer{ID: m.Model.ID}
				if tc.answer != nil {
					a = *tc.answer
					a.ID = m.Model.ID
				} else {
					f.send(gatewire.Down{Begin: &gatewire.Begin{ID: m.Model.ID, Call: "c"}}, nil)
					done, _ := f.recv()
					a.Status, a.Reason = done.ModelDone.Status, done.ModelDone.Reason+": "+done.ModelDone.Message
				}
				f.send(gatewire.Down{Answer: &a}, nil)
			}()
			if code, body := f.post(hi); code != tc.code || !strings.Contains(body, tc.text) {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

func TestRequestsOutsideTheAllowListAreNoProposals(t *testing.T) {
	f := start(t, oneTool, answerOK)
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"hi"}],"store":true}`, `{}`, `[`, `{"messages":[{"role":"user","content":"x"}],"web_search_options":{}}`,
	} {
		if code, b := f.post(body); code != 400 {
			t.Errorf("%s: %d %s", body, code, b)
		}
	}
	f.gate.Close() // no message may be waiting: the next read would show it
}

// TestAbort: the gate's deadline ends a model call that doesn't end by itself.
func TestAbort(t *testing.T) {
	f := start(t, oneTool, func(ctx context.Context, _ chat.Request, _ func(string)) (chat.Response, error) {
		<-ctx.Done()
		return chat.Response{}, &model.Error{Reason: model.ReasonCancelled, Msg: "gone"}
	})
	go func() {
		m, _ := f.recv()
		f.send(gatewire.Down{Begin: &gatewire.Begin{ID: m.Model.ID, Call: "c"}}, nil)
		<-f.used
		f.send(gatewire.Down{Abort: &gatewire.Abort{ID: m.Model.ID, Reason: "timeout"}}, nil)
		done, _ := f.recv()
		if done.ModelDone.Status != "timeout" {
			t.Errorf("%+v", done.ModelDone)
		}
		f.send(gatewire.Down{Answer: &gatewire.Answer{ID: m.Model.ID, Status: "timeout", Reason: "timeout: the model call was ended"}}, nil)
	}()
	if code, body := f.post(hi); code != 502 || !strings.Contains(body, "timeout") {
		t.Errorf("%d %s", code, body)
	}
}

func TestLoopReport(t *testing.T) {
	for name, tc := range map[string]struct{ out, reason, blob string }{
		"good":    {`{"reason":"completed","report":"all is well","iterations":2,"tool_calls":1}`, "completed", "all is well"},
		"garbage": {"\x00\xffnope", "", ""},
		"unknown": {`{"reason":"made_up","report":"x"}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, oneTool, answerOK)
			_, _ = f.out.WriteString(tc.out)
			f.out.Close()
			m, blob := f.recv()
			if m.LoopEnd == nil || m.LoopEnd.Reason != tc.reason || string(blob) != tc.blob {
				t.Errorf("%+v %q", m, blob)
			}
		})
	}
}
