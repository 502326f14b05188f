package agent

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli/clitest"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/termsafe"
)

func all() map[string]*agentosv1.RunEvent {
	m := map[string]*agentosv1.RunEvent{
		"started":  {Event: &agentosv1.RunEvent_Started{Started: &agentosv1.Started{}}},
		"proposed": {Event: &agentosv1.RunEvent_Proposed{Proposed: &agentosv1.CallProposed{}}},
		"decided":  {Event: &agentosv1.RunEvent_Decided{Decided: &agentosv1.CallDecided{}}},
		"ended":    {Event: &agentosv1.RunEvent_CallEnded{CallEnded: &agentosv1.CallEnded{}}},
		"text":     {Event: &agentosv1.RunEvent_Text{Text: &agentosv1.TextDelta{}}},
		"notice":   {Event: &agentosv1.RunEvent_Notice{Notice: &agentosv1.Notice{}}},
		"end":      {Event: &agentosv1.RunEvent_Ended{Ended: &agentosv1.Ended{}}},
	}
	for _, ev := range m {
		clitest.Fill(ev)
	}
	return m
}

func TestNothingHostileIsPrinted(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 40, 100} {
		for name, ev := range all() {
			e, out := clitest.Env(width)
			v := &plain{env: e}
			events := []*agentosv1.RunEvent{ev}
			switch name {
			case "text":
				continue // the moving line's, below
			case "proposed":
				done := &agentosv1.CallEnded{Call: ev.GetProposed().GetCall(), Status: "ok"}
				events = append(events, &agentosv1.RunEvent{Event: &agentosv1.RunEvent_CallEnded{CallEnded: done}})
			}
			for _, x := range events {
				if err := v.event(x); err != nil {
					t.Fatal(err)
				}
			}
			clitest.Harmless(t, name, out)
		}
	}
}

// The moving line stays on one line of the terminal and shows nothing hostile.
func TestMovingLine(t *testing.T) {
	t.Parallel()
	e, out := clitest.Env(40)
	v := &live{plain: plain{env: e}}
	m := all()
	for _, name := range []string{"proposed", "text"} {
		if err := v.event(m[name]); err != nil {
			t.Fatal(err)
		}
		v.tick(time.Unix(0, 0))
		v.tick(time.Unix(100, 0))
	}
	v.done()
	s := out.String()
	for _, l := range strings.Split(s, clearLine) {
		if termsafe.Width(l) > 39 || termsafe.Text(l) != l || strings.Contains(l, "\n") {
			t.Errorf("moving line %q", l)
		}
	}
	if !strings.HasSuffix(s, clearLine) || !strings.Contains(s, "␛]0;t") {
		t.Errorf("the line is left over, or empty: %q", s)
	}
}

// A permanent line never lands on the moving one, and after the end nothing moves.
func TestLiveKeepsLinesApart(t *testing.T) {
	t.Parallel()
	e, out := clitest.Env(80)
	v := &live{plain: plain{env: e}}
	at := time.Unix(0, 0)
	send := func(ev *agentosv1.RunEvent) {
		if err := v.event(ev); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
		v.tick(at)
	}
	prop := func(id, name string) *agentosv1.RunEvent {
		return &agentosv1.RunEvent{Event: &agentosv1.RunEvent_Proposed{Proposed: &agentosv1.CallProposed{Call: id, Action: "tool.call", Resource: name}}}
	}
	fin := func(id string) *agentosv1.RunEvent {
		return &agentosv1.RunEvent{Event: &agentosv1.RunEvent_CallEnded{CallEnded: &agentosv1.CallEnded{Call: id, Status: "ok"}}}
	}
	send(prop("1", "one"))
	send(prop("2", "two"))
	send(fin("2"))
	send(fin("1"))
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Ended{Ended: &agentosv1.Ended{Reason: "completed"}}})
	v.done()
	screen := regexp.MustCompile(`[^\n]*`+regexp.QuoteMeta(clearLine)).ReplaceAllString(out.String(), "")
	lines := strings.Split(strings.TrimSpace(screen), "\n")
	if !strings.HasPrefix(lines[0], "✓ two") || !strings.HasPrefix(lines[1], "✓ one") || strings.Contains(screen, "⠋") || strings.Contains(screen, "\r") {
		t.Errorf("screen:\n%s", screen)
	}
	if !strings.Contains(out.String(), "one, two") {
		t.Error("both running calls should show")
	}
}

func TestEnding(t *testing.T) {
	t.Parallel()
	for reason, code := range map[string]int{"completed": 0, "limit_elapsed": 13, "cancelled": 130, "refused": 3, "nonsense": 1, "": 1} {
		e, _ := clitest.Env(0)
		got := e.Report(ending(&agentosv1.Ended{Reason: reason}))
		if got != code {
			t.Errorf("%q ends with %d, want %d", reason, got, code)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		w    watcher
		ctx  context.Context
		err  error
		code int
		msg  string
	}{
		"cancelled":              {watcher{runID: "run-1"}, ctx, context.Canceled, 130, "next: agentos lineage run-1 shows"},
		"cancelled, bad end":     {watcher{}, ctx, fault.New(fault.Unavailable, "n", "disk full"), 130, "did not end well: disk full"},
		"completed, then Ctrl-C": {watcher{ended: &agentosv1.Ended{Reason: "completed"}}, ctx, nil, 0, ""},
		"completed, bad end":     {watcher{ended: &agentosv1.Ended{Reason: "completed"}}, context.Background(), fault.New(fault.Unavailable, "n", "disk full"), 5, "disk full"},
		"no last event":          {watcher{}, context.Background(), nil, 1, "without saying why"},
	} {
		e, out := clitest.Env(0)
		if got := e.Report(tc.w.verdict(tc.ctx, tc.err)); got != tc.code || !strings.Contains(out.String(), tc.msg) {
			t.Errorf("%s: %d %q", name, got, out)
		}
	}
}
