//go:build linux

package supervisor

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/host/procstatus"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
)

// TestEnds is INV-05: however a part behaves, the run ends with the reason of
// the closed set that says so, recorded, with nothing left behind.
func TestEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		shim, loop string
		want       endreason.Reason
		detail     string // part of it
		text       string // part of what was shown
	}{
		"completed":                        {"obey,0", "obey", endreason.Completed, "", ""},
		"code of a limit":                  {"obey,13", "obey", endreason.LimitElapsed, "", ""},
		"code of a refusal":                {"obey,3", "obey", endreason.Refused, "", ""},
		"code of an error":                 {"obey,1", "obey", endreason.Internal, "", ""},
		"code without a reason":            {"obey,99", "obey", endreason.Crashed, "", ""},
		"signal":                           {"tool-open", "signal", endreason.Crashed, "signal 15", ""},
		"the code counts, not the words":   {"report", "obey", endreason.Completed, "its words", ""},
		"report that is not text":          {"report,\xff\xfe", "obey", endreason.Completed, "", ""},
		"report over the limit":            {"big-report", "obey", endreason.Crashed, "", "broke the protocol"},
		"shim dies at start":               {"dies-at-start", "obey", endreason.Internal, "cannot confine", ""},
		"shim begins with garbage":         {"garbage-first", "obey", endreason.Internal, "shim", ""},
		"shim begins with another message": {"other-first", "obey", endreason.Internal, "first message is not ready", ""},
		"shim dies":                        {"dies", "hang", endreason.Crashed, "fell over", ""},
		"shim hangs up":                    {"hangs-up", "hang", endreason.Crashed, "shim ended", ""},
		"shim sends garbage":               {"garbage", "hang", endreason.Crashed, "shim ended", "broke the protocol"},
		"shim sends too much":              {"huge", "hang", endreason.Crashed, "shim ended", ""},
		"ready twice":                      {"ready-twice", "hang", endreason.Crashed, "", "out of place"},
		"two ends of the loop":             {"two-ends", "hang", endreason.Crashed, "", "second end"},
		"too many proposals":               {"many", "hang", endreason.Crashed, "", "limit 64"},
		"the same proposal twice":          {"same-id", "hang", endreason.Crashed, "", "broke the protocol"},
		"end of no call":                   {"done-for-nothing", "obey", endreason.Completed, "", ""},
		"end of a tool call":               {"done-for-a-tool", "hang", endreason.Crashed, "", "without its begin"},
		"end of a model call twice":        {"model,twice", "obey", "", "", ""}, // either is told in time
		"loop dies":                        {"obey,0", "dies", endreason.Internal, "cannot lock", ""},
		"loop says something else":         {"obey,0", "not-ready", endreason.Internal, "did not confine itself", ""},
		"a place is free with its answer":  {"full-house", "obey", endreason.Completed, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.shim, tc.loop)
			end := b.run(t.Context())
			if tc.want != "" && endreason.Reason(end.GetReason()) != tc.want || !endreason.Reason(end.GetReason()).Valid() {
				t.Errorf("reason %q, want %q: %s", end.GetReason(), tc.want, end.GetDetail())
			}
			if !strings.Contains(end.GetDetail(), tc.detail) {
				t.Errorf("detail %q, want %q in it", end.GetDetail(), tc.detail)
			}
			if !strings.Contains(b.texts(), tc.text) {
				t.Errorf("shown %q, want %q in it", b.texts(), tc.text)
			}
			if end.GetExitCode() != int32(endreason.Reason(end.GetReason()).ExitCode()) {
				t.Errorf("exit code %d", end.GetExitCode())
			}
		})
	}
}

func TestReport(t *testing.T) {
	b := newBench(t, "report", "obey")
	end := b.run(t.Context())
	if end.GetReport() != "report of the loop" || end.GetCheckpoint() != "note" || !end.GetVerified() || end.GetAuditFirst() != 1 || int(end.GetAuditLast()) != len(b.records) {
		t.Errorf("%v", end)
	}
	last := b.records[len(b.records)-1]
	if len(last.Payloads) != 1 || string(last.Payloads[0].Data) != "report of the loop" {
		t.Errorf("payloads %+v", last.Payloads)
	}
	start := b.records[0]
	if body := start.Body.(startBody); body.Identity["tool"] != "4000:4000" || body.Backend != "socket" || string(start.Payloads[0].Data) != "the goal" {
		t.Errorf("%+v", start)
	}
	if o, ok := b.outcome(call.AgentStart); !ok || o.Facts["landlock_abi"] != 7 || o.Facts["not_enforced"].([]string)[0] != "x\u00e9" {
		t.Errorf("%+v", o)
	}
}

// TestUnverifiedPartIsToldNothing is OSA-02: what the kernel says of a part is
// compared with its binding before the part learns anything.
func TestUnverifiedPartIsToldNothing(t *testing.T) {
	for wrong, change := range map[string]func(*procstatus.Status){
		"uid":             func(s *procstatus.Status) { s.UID = 4001 },
		"effective uid":   func(s *procstatus.Status) { s.EUID = 0 },
		"gid":             func(s *procstatus.Status) { s.GID = 4001 },
		"effective gid":   func(s *procstatus.Status) { s.EGID = 0 },
		"new privileges":  func(s *procstatus.Status) { s.NoNewPrivs = false },
		"no filter":       func(s *procstatus.Status) { s.Seccomp = 0 },
		"capability":      func(s *procstatus.Status) { s.CapEff = 1 },
		"kept capability": func(s *procstatus.Status) { s.CapPrm = 1 },
		"unreadable":      func(s *procstatus.Status) { s.Seccomp = -1 },
	} {
		for _, part := range []string{"agentos-shim", "agentos-loop"} {
			t.Run(part+" "+wrong, func(t *testing.T) {
				b := newBench(t, "obey,0", "obey")
				b.status = func(p string, s *procstatus.Status) {
					if p == part {
						change(s)
					}
				}
				if end := b.run(t.Context()); end.GetReason() != string(endreason.Refused) || end.GetNext() == "" {
					t.Errorf("%s: %s", end.GetReason(), end.GetDetail())
				}
				if b.marked("obey", "told") || part == "agentos-shim" && (b.marked("obey,0", "told") || b.marked("obey", "started")) {
					t.Error("a part was told something")
				}
			})
		}
	}
}

// TestUnverifiedToolHasNoEffect: the same for a tool's process.
func TestUnverifiedToolHasNoEffect(t *testing.T) {
	b := newBench(t, "tool,echo", "obey")
	b.status = func(p string, s *procstatus.Status) {
		if p == "agentos-tool" {
			s.EUID = 0
		}
	}
	b.run(t.Context())
	if o, ok := b.outcome(call.ToolCall); !ok || o.Status != call.Error || o.ResultBytes != 0 {
		t.Errorf("%+v", o)
	}
}

func TestToolCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		shim   string
		status call.Status
		said   string // by the gate to the shim
	}{
		"ok":            {"tool,echo", call.OK, `{"data":{"k":"v"},"status":"ok"}`},
		"tool's error":  {"tool,fails", call.Error, "no such thing"},
		"forbidden":     {"tool,forbidden", "", `"stage":"policy"`},
		"no JSON":       {"bad-args", "", `"stage":"schema"`},
		"too large":     {"big-args", "", `"stage":"schema"`},
		"accents":       {"accents", call.OK, `"status":"ok"`}, // cut inside a letter for display
		"long accents":  {"tool,long", call.Error, "éé"},
		"name too long": {"long-name", call.OK, ""}, // this catalogue knows every tool
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.shim, "obey")
			end := b.run(t.Context())
			if end.GetReason() != "completed" {
				t.Fatalf("%s: %s %s", end.GetReason(), end.GetDetail(), b.texts())
			}
			o, ok := b.outcome(call.ToolCall)
			if tc.said != "" && o.Status != tc.status || ok != (tc.status != "") {
				t.Errorf("outcome %+v", o)
			}
			if !strings.Contains(b.texts(), tc.said) {
				t.Errorf("answered %.3000s", b.texts())
			}
			kinds := map[audit.Kind]int{}
			for _, r := range b.records {
				kinds[r.Kind]++
			}
			if want := map[bool]int{true: 1}[tc.status == ""]; kinds[audit.KindDenied] != want || end.GetTotals().GetDenied() != int64(want) {
				t.Errorf("%d denials recorded, %d counted, want %d", kinds[audit.KindDenied], end.GetTotals().GetDenied(), want)
			}
			if want := map[bool]int64{true: 1}[ok]; end.GetTotals().GetToolCalls() != want {
				t.Errorf("%d tool calls", end.GetTotals().GetToolCalls())
			}
		})
	}
}

// TestCancel: a proposal that the agent gave up on is answered, whether it was
// admitted by then or not; the tool would never end by itself.
func TestCancel(t *testing.T) {
	b := newBench(t, "cancel", "obey")
	began := time.Now()
	if end := b.run(t.Context()); end.GetReason() != "completed" || time.Since(began) > 4*time.Second {
		t.Errorf("%v after %s", end, time.Since(began))
	}
	o, admitted := b.outcome(call.ToolCall)
	if admitted && o.Status != call.Cancelled || !admitted && !strings.Contains(b.texts(), "gave up") {
		t.Errorf("%+v %s", o, b.texts())
	}
}

// TestModelCalls: what the shim reports is held to bounds and charged (INV-03).
func TestModelCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		shim    string
		status  call.Status
		reason  string
		in, out int64
		tokens  int64 // charged
	}{
		"ok":             {"model", call.OK, "", 3, 4, 7},
		"failed":         {"model,error", call.Error, "server: said no", 3, 4, 7},
		"negative use":   {"model,negative", call.OK, "", 0, 4, 4},
		"absurd use":     {"model,huge", call.OK, "", 1 << 40, 1 << 40, 1 << 41},
		"says denied":    {"model,denied", call.Error, "denied", 0, 0, 100}, // only the gate says that
		"shim dies":      {"model,dies", call.Error, "crashed: the shim ended during the call", 0, 0, 100},
		"deadline":       {"model,deaf", call.Timeout, "timeout", 0, 0, 100},
		"deadline, told": {"model,late", call.OK, "", 3, 4, 7},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.shim, "obey")
			b.cfg.Budget = budget.Amount{budget.Tokens: 100}
			if strings.HasPrefix(name, "deadline") {
				b.model = 50 * time.Millisecond
			}
			end := b.run(t.Context())
			o, ok := b.outcome(call.ModelGenerate)
			if !ok || o.Status != tc.status || !strings.Contains(o.Reason, tc.reason) {
				t.Errorf("%+v, want %s %q", o, tc.status, tc.reason)
			}
			if want := map[bool]string{true: "crashed", false: "completed"}[name == "shim dies"]; end.GetReason() != want {
				t.Errorf("run ended %s: %s", end.GetReason(), end.GetDetail())
			}
			if o.Used[budget.Tokens] != tc.tokens || o.Used[budget.ModelCall] > 1 {
				t.Errorf("charged %v, want %d tokens", o.Used, tc.tokens)
			}
			if end.GetTotals().GetInputTokens() != tc.in || end.GetTotals().GetOutputTokens() != tc.out || end.GetTotals().GetIterations() != 1 {
				t.Errorf("totals %v", end.GetTotals())
			}
		})
	}
}

// TestModelConnection: the shim gets a connection with the begin of an admitted
// call, and none before or for a refused one.
func TestModelConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		budget int64
		err    error
		said   string
	}{
		"admitted":    {100, nil, "connection: served"},
		"refused":     {1, nil, `"resource":"tokens"`},
		"unavailable": {100, errors.New("nobody listens"), "unavailable: nobody listens"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "model", "obey")
			b.cfg.Budget = budget.Amount{budget.Tokens: tc.budget}
			opened := 0
			b.deps.Connect = func(context.Context) (*os.File, error) {
				opened++
				if n := len(b.records); b.records[n-1].Kind != audit.KindIntent {
					t.Errorf("connected after %s", b.records[n-1].Kind)
				}
				r, w, err := os.Pipe()
				if err != nil || tc.err != nil {
					return nil, errors.Join(err, tc.err, r.Close(), w.Close())
				}
				_, _ = w.WriteString("served")
				return r, w.Close()
			}
			end := b.run(t.Context())
			if !strings.Contains(b.texts(), tc.said) || end.GetReason() != "completed" {
				t.Errorf("%s %s", end.GetReason(), b.texts())
			}
			if want := map[bool]int{true: 1}[name != "refused"]; opened != want {
				t.Errorf("%d connections", opened)
			}
		})
	}
}

// TestStopped: a cancelled and an overlong run end in order: the door is closed
// while the parts still live, and nothing is left of them or of their calls.
func TestStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		elapsed int // ms; 0: the caller cancels
		shim    string
		want    endreason.Reason
	}{
		"cancelled":              {0, "tool-open", endreason.Cancelled},
		"cancelled, model":       {0, "model,deaf", endreason.Cancelled},
		"elapsed":                {1, "tool-open", endreason.LimitElapsed},
		"cancelled at the start": {0, "silent", endreason.Cancelled},
		"elapsed at the start":   {1, "silent", endreason.LimitElapsed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.shim, "hang")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.elapsed > 0 {
				b.cfg.Limits.ElapsedMS = tc.elapsed
			} else {
				b.onEvent = func(e *pb.RunEvent) {
					if e.GetDecided().GetAllowed() {
						cancel()
					}
				}
				if tc.shim == "silent" {
					time.AfterFunc(100*time.Millisecond, cancel)
				}
			}
			end := b.run(ctx)
			if endreason.Reason(end.GetReason()) != tc.want {
				t.Errorf("%s: %s", end.GetReason(), end.GetDetail())
			}
			if tc.shim == "silent" {
				if o, _ := b.outcome(call.AgentStart); o.Status != call.Cancelled {
					t.Errorf("%+v", o)
				}
				return
			}
			for _, part := range []string{"agentos-loop", "agentos-shim"} {
				if !slices.Contains(b.atStop, part) {
					t.Errorf("%s was ended before the run was stopped: %v", part, b.atStop)
				}
			}
		})
	}
}

// TestStartDeadline: a part that never gets ready costs the deadline of
// agent.start, not more.
func TestStartDeadline(t *testing.T) {
	for _, parts := range [][2]string{{"silent", "obey"}, {"obey,0", "never-ready"}} {
		b := newBench(t, parts[0], parts[1])
		b.started = 300 * time.Millisecond
		began := time.Now()
		end := b.run(t.Context())
		if o, _ := b.outcome(call.AgentStart); o.Status != call.Timeout || end.GetReason() != "internal" {
			t.Errorf("%v: %+v %v", parts, o, end)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%v took %s", parts, took)
		}
	}
}

// TestNoRecordNoEffect is INV-01 seen from here: what can't be recorded doesn't
// happen.
func TestNoRecordNoEffect(t *testing.T) {
	full := errors.New("disk full")
	t.Run("run", func(t *testing.T) {
		b := newBench(t, "obey,0", "obey")
		b.fail[audit.KindRunStart] = full
		if _, err := New(b.cfg, b.deps).Run(t.Context(), "g", b.emit); !errors.Is(err, full) || len(b.pids) != 0 || len(b.events) != 0 {
			t.Errorf("%v, parts %v, events %v", err, b.pids, b.events)
		}
	})
	t.Run("start", func(t *testing.T) {
		b := newBench(t, "obey,0", "obey")
		b.fail[audit.KindIntent] = full
		if end := b.run(t.Context()); end.GetReason() != "internal" || len(b.pids) != 0 {
			t.Errorf("%v, parts %v", end, b.pids)
		}
	})
	t.Run("refused start", func(t *testing.T) {
		b := newBench(t, "obey,0", "obey")
		b.cfg.Owner = 0
		if end := b.run(t.Context()); end.GetReason() != "refused" || end.GetExitCode() != 3 || len(b.pids) != 0 {
			t.Errorf("%v, parts %v", end, b.pids)
		}
	})
	t.Run("call", func(t *testing.T) {
		b := newBench(t, "tool,echo", "obey")
		b.onEvent = func(e *pb.RunEvent) { // with b.mu held
			if e.GetProposed() != nil {
				b.fail[audit.KindIntent] = full
			}
		}
		b.run(t.Context())
		if b.pids["agentos-tool"] != 0 || !strings.Contains(b.texts(), "could not be recorded") {
			t.Errorf("parts %v: %s", b.pids, b.texts())
		}
	})
	t.Run("end", func(t *testing.T) {
		b := newBench(t, "obey,0", "obey")
		b.fail[audit.KindRunEnd] = full
		if _, err := New(b.cfg, b.deps).Run(t.Context(), "g", b.emit); !errors.Is(err, full) {
			t.Errorf("%v", err)
		}
		b.checkNothingLeft(1 << 20)
	})
}

// TestEndBeforeBegin: a report on a model call that was not admitted yet breaks
// the protocol; it can't become the call's outcome.
func TestEndBeforeBegin(t *testing.T) {
	b := newBench(t, "done-before-begin", "hang")
	b.hold = make(chan struct{})
	b.onEvent = func(e *pb.RunEvent) {
		if strings.Contains(e.GetNotice().GetText(), "without its begin") {
			close(b.hold)
		}
	}
	if end := b.run(t.Context()); end.GetReason() != "crashed" {
		t.Errorf("%v", end)
	}
	if o, ok := b.outcome(call.ModelGenerate); ok && o.Status == call.OK {
		t.Errorf("%+v", o)
	}
}

// TestReplayScript: the shim gets the opened script with its hello; one that
// can't be opened ends the start with the reason.
func TestReplayScript(t *testing.T) {
	b := newBench(t, "obey,0", "obey")
	b.cfg.Replay = func() (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		_, _ = w.WriteString("turns")
		return r, w.Close()
	}
	if end := b.run(t.Context()); end.GetReason() != "completed" || !strings.Contains(b.texts(), "script: turns") {
		t.Errorf("%v %s", end, b.texts())
	}
	b = newBench(t, "obey,0", "obey")
	b.cfg.Replay = func() (*os.File, error) {
		return nil, fault.New(fault.Usage, "name it", "script is gone")
	}
	if end := b.run(t.Context()); end.GetReason() != "internal" || !strings.Contains(end.GetDetail(), "script is gone") || end.GetNext() != "name it" {
		t.Errorf("%v", end)
	}
}

// TestGrants: a run gets the configured grants under its own name, and they go
// with it.
func TestGrants(t *testing.T) {
	b := newBench(t, "obey,0", "obey")
	table := b.deps.Grants.(interface {
		Check(*call.Call) (string, error)
	})
	c, err := call.New("c", call.Subject{Owner: 1000, Agent: "a", Run: "run-1"}, call.ToolCall, "echo", nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var during string
	b.onEvent = func(e *pb.RunEvent) {
		if e.GetStarted() != nil {
			during, _ = table.Check(&c)
		}
	}
	b.run(t.Context())
	if _, err := table.Check(&c); during != "grant-1:echo" || err == nil {
		t.Errorf("during the run %q, after it %v", during, err)
	}
}

// TestClip: text is cut to whole letters, and is text.
func TestClip(t *testing.T) {
	got := []string{clip("abc", 2), clip("é", 1), clip("a\xffb", 9)}
	if d := cmp.Diff([]string{"ab", "\uFFFD", "a\uFFFDb"}, got); d != "" {
		t.Error(d)
	}
}
