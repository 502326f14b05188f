//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentos/internal/api/runspec"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
	"agentos/internal/lib/endreason"
)

// The test binary is the command when it is started under its name.
func TestMain(m *testing.M) {
	if os.Args[0] == "agentos-loop" {
		main()
	}
	os.Exit(m.Run())
}

const (
	agentUID = 54321
	limits   = `"limits":{"iterations":8,"tool_calls":16,"elapsed_ms":120000,"output_tokens":2048,"total_tokens":65536,"parallel":4}`
)

// world is what stands around one loop process.
type world struct {
	proc   *spawn.Process
	tools  net.Conn
	model  net.Conn
	stdout *os.File
	stderr *os.File
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

// pair is a connected stream: one end to use, one to hand to a child.
func pair() (*net.UnixConn, *os.File, error) {
	a, b, err := fdframe.Pair()
	if err != nil {
		return nil, nil, err
	}
	c, err := fdframe.Inherited(a)
	return c, b, err
}

func start(t *testing.T, uid uint32, spec string) *world {
	t.Helper()
	bin, err := spawn.OpenBinary("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bin.Close() }()
	var w world
	var files []*os.File
	for _, c := range []*net.Conn{&w.tools, &w.model} {
		ours, theirs, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		*c = ours
		t.Cleanup(func() { _ = ours.Close() })
		files = append(files, theirs)
	}
	control, in, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Close() })
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	w.stdout, w.stderr = outR, errR
	w.proc, err = spawn.Start(t.Context(), spawn.Spec{
		Binary: bin, Argv: []string{"agentos-loop"}, Files: files, Stdin: in, Stdout: outW, Stderr: errW,
		UID: uid, GID: uid,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, in, outW, errW) {
		_ = f.Close()
	}
	ready := make([]byte, len(runspec.Ready))
	_, err = io.ReadFull(control, ready)
	if locked := err == nil && string(ready) == runspec.Ready; locked != (uid != 0) {
		t.Fatalf("said %q (%v) as uid %d", ready, err, uid)
	}
	if uid != 0 && spec != "" {
		if _, err := io.WriteString(control, spec); err != nil {
			t.Fatal(err)
		}
		if err := control.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	return &w
}

// result waits for the end.
func (w *world) result(t *testing.T) (runspec.Report, spawn.Exit) {
	t.Helper()
	out, err := io.ReadAll(w.stdout)
	if err != nil {
		t.Fatal(err)
	}
	errs, err := io.ReadAll(w.stderr)
	if err != nil {
		t.Fatal(err)
	}
	e, err := w.proc.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var r runspec.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("exit %+v, stdout %q, stderr %q: %v", e, out, errs, err)
	}
	if e.Code != r.Reason.ExitCode() {
		t.Errorf("exit code %d of reason %s, want %d", e.Code, r.Reason, r.Reason.ExitCode())
	}
	return r, e
}

// serveTools offers one read-only tool that answers with its arguments.
func (w *world) serveTools(t *testing.T) {
	t.Helper()
	srv := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	srv.AddTool(&mcp.Tool{Name: "look", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "saw " + string(r.Params.Arguments)}}}, nil
		})
	go func() { _ = srv.Run(context.Background(), &mcp.IOTransport{Reader: w.tools, Writer: w.tools}) }()
}

type one struct{ c chan net.Conn }

func (o one) Accept() (net.Conn, error) {
	if c, ok := <-o.c; ok {
		return c, nil
	}
	return nil, io.EOF
}
func (o one) Close() error   { return nil }
func (o one) Addr() net.Addr { return &net.UnixAddr{} }

func (w *world) serveModel(t *testing.T, h func(http.ResponseWriter, completions.ServerRequest)) {
	t.Helper()
	l := one{make(chan net.Conn, 1)}
	l.c <- w.model
	t.Cleanup(func() { close(l.c) })
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			req, err := completions.DecodeRequest(body)
			if err != nil {
				http.Error(rw, err.Error(), http.StatusBadRequest)
				return
			}
			h(rw, req)
		}))
	}()
}

func reply(w http.ResponseWriter, stream bool, m chat.Message, stop chat.StopReason) {
	m.Role = chat.Assistant
	resp := chat.Response{ID: "r", Message: m, Stop: stop, Usage: chat.Usage{InputTokens: 7, OutputTokens: 3}}
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = completions.NewStreamWriter(w, "r", "m", 0, true).Finish(resp)
		return
	}
	b, err := completions.EncodeResponse(resp, 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(b)
}

// Spec: OSA-01, OSA-02. A whole run in the locked process, streamed and not, by
// a user of its own. While the model thinks, the process is looked at from
// outside.
func TestRun(t *testing.T) {
	for _, stream := range []bool{false, true} {
		w := start(t, agentUID, fmt.Sprintf(`{"run":"run-1","goal":"look around","system":"be brief","stream":%v,%s}`, stream, limits))
		w.serveTools(t)
		var status string
		w.serveModel(t, func(rw http.ResponseWriter, req completions.ServerRequest) {
			if n := len(req.Messages); n == 2 {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.proc.PID()))
				if err != nil {
					t.Error(err)
				}
				status = string(b)
				reply(rw, stream, chat.Message{ToolCalls: []chat.ToolCall{
					{ID: "a", Name: "look", Arguments: `{"at":"a"}`}, {ID: "b", Name: "look", Arguments: `{"at":"b"}`}, {ID: "c", Name: "fly", Arguments: `{}`},
				}}, chat.StopToolCalls)
				return
			}
			var got []string
			for _, m := range req.Messages[3:] {
				got = append(got, m.ToolCallID+": "+m.Text)
			}
			want := []string{`a: saw {"at":"a"}`, `b: saw {"at":"b"}`, `c: error: there is no tool "fly"; use one of the offered tools`}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			reply(rw, stream, chat.Message{Text: "all is well"}, chat.StopEnd)
		})
		got, _ := w.result(t)
		want := runspec.Report{Reason: endreason.Completed, Report: "all is well", Iterations: 2, ToolCalls: 3}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stream %v (-want +got):\n%s", stream, diff)
		}
		for _, line := range []string{"Name:\tagentos-loop\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n", "Uid:\t54321\t54321\t54321\t54321\n", "Groups:\t \n", "CapEff:\t0000000000000000\n"} {
			if !strings.Contains(status, line) {
				t.Errorf("status of the process lacks %q:\n%s", line, status)
			}
		}
	}
}

func TestEnds(t *testing.T) {
	model := func(code string) func(t *testing.T, w *world) {
		return func(t *testing.T, w *world) {
			w.serveTools(t)
			w.serveModel(t, func(rw http.ResponseWriter, _ completions.ServerRequest) {
				rw.WriteHeader(http.StatusBadGateway)
				_, _ = rw.Write(completions.EncodeError(completions.ServerError{Message: "why", Code: code}))
			})
		}
	}
	const spec = `{"goal":"g",` + limits + `}`
	for name, tt := range map[string]struct {
		uid  uint32
		spec string
		do   func(t *testing.T, w *world)
		want endreason.Reason
	}{
		"not understood": {agentUID, spec, model("not_understood"), endreason.NotUnderstood},
		"denied":         {agentUID, spec, model("denied_policy"), endreason.Refused},
		"budget":         {agentUID, spec, model("budget_tokens"), endreason.LimitTotalTokens},
		"bad spec":       {agentUID, `{"goal":"g","x":1,` + limits + `}`, nil, endreason.Internal},
		"root":           {0, spec, nil, endreason.Internal},
		"no tools":       {agentUID, spec, func(_ *testing.T, w *world) { _ = w.tools.Close() }, endreason.Crashed},
		"terminated": {agentUID, spec, func(t *testing.T, w *world) {
			w.serveTools(t)
			w.serveModel(t, func(http.ResponseWriter, completions.ServerRequest) {
				_ = w.proc.Terminate()
				<-w.proc.Done()
			})
		}, endreason.Cancelled},
		"terminated before its order": {agentUID, "", func(_ *testing.T, w *world) { _ = w.proc.Terminate() }, endreason.Cancelled},
		"silent tools":                {agentUID, `{"goal":"g","limits":{"iterations":8,"tool_calls":16,"elapsed_ms":300,"output_tokens":9,"total_tokens":99,"parallel":4}}`, nil, endreason.LimitElapsed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, tt.uid, tt.spec)
			if tt.do != nil {
				tt.do(t, w)
			}
			if got, _ := w.result(t); got.Reason != tt.want || got.Detail == "" {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}
