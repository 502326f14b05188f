package rules

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
)

func backend(t testing.TB) *Backend {
	t.Helper()
	b, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUnderstands(t *testing.T) {
	t.Parallel()
	tests := []struct {
		goal, intent string
		slots        slots
	}{
		{"inspect this Linux system", "inspect", slots{}},
		{"Please inspect this machine.", "inspect", slots{}},
		{"What is this machine?", "inspect", slots{}},
		{"what's this machine", "inspect", slots{}},
		{"summarize the system state", "inspect", slots{}},
		{"is the system healthy", "inspect", slots{}},
		{"how is my laptop doing?", "inspect", slots{}},
		{"which kernel is running", "inspect", slots{}},
		{"Inspect this machine and summarize its state", "inspect", slots{}},
		{"give me a short summary of this server", "inspect", slots{}},
		{"inspect this", "inspect", slots{}},
		{"Inspect the local Linux machine and tell me what you find.", "inspect", slots{}},
		{"tell me about this machine", "inspect", slots{}},
		{"what is wrong with this machine", "inspect", slots{}},
		{"what is the current state of this host?", "inspect", slots{}},
		{"how much memory does this machine have", "slow", slots{}},
		{"is ssh running and report what you find", "service", slots{unit: "ssh.service"}},
		{"Why is this machine so slow?", "slow", slots{}},
		{"why is it slow", "slow", slots{}},
		{"high load", "slow", slots{}},
		{"why is the load so high on this machine", "slow", slots{}},
		{"what is using all the memory", "slow", slots{}},
		{"memory is full", "slow", slots{}},
		{"is the disk full", "disk", slots{}},
		{"how much disk space is left?", "disk", slots{}},
		{"No space left on device", "disk", slots{}},
		{"is the service ssh healthy", "service", slots{unit: "ssh.service"}},
		{"is NetworkManager running?", "service", slots{unit: "NetworkManager.service"}},
		{"status of the \"cron.service\"", "service", slots{unit: "cron.service"}},
		{"is dbus.socket active", "service", slots{unit: "dbus.socket"}},
		{"why did postgresql@16-main fail", "service", slots{unit: "postgresql@16-main.service"}},
		{"check the nginx service", "service", slots{unit: "nginx.service"}},
		{"is curl installed", "package", slots{pkg: "curl"}},
		{"what is package libstdc++6", "package", slots{pkg: "libstdc++6"}},
		{"what is bash", "package", slots{pkg: "bash"}},
		{"Which version of openssl is installed here?", "package", slots{pkg: "openssl"}},
		{"do I have the package jq installed", "package", slots{pkg: "jq"}},
		{"what changed in the journal of ssh", "journal", slots{unit: "ssh.service"}},
		{"what changed in the journal of unit ssh.service in the last 30 minutes", "journal", slots{unit: "ssh.service", minutes: 30}},
		{"errors in the log of nginx in the last hour", "journal", slots{unit: "nginx.service", minutes: 60, priority: "err"}},
		{"warnings in the journal of cron over the past 2 days", "journal", slots{unit: "cron.service", minutes: 2880, priority: "warning"}},
		{"are there any errors in the log of the nginx service", "journal", slots{unit: "nginx.service", priority: "err"}},
		{"which accelerators are there", "accelerators", slots{}},
		{"does this machine have an NPU?", "accelerators", slots{}},
		{"is there a GPU", "accelerators", slots{}},
	}
	b := backend(t)
	for _, tt := range tests {
		m, err := b.understand(tt.goal)
		if err != nil {
			t.Errorf("%q: %v", tt.goal, err)
			continue
		}
		if m.intent.name != tt.intent || m.slots != tt.slots {
			t.Errorf("%q: %s %+v, want %s %+v", tt.goal, m.intent.name, m.slots, tt.intent, tt.slots)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		goal string
		says []string
	}{
		"empty":              {"", []string{"understood are", "inspect this Linux system"}},
		"nothing said":       {"please?", []string{"understood are"}},
		"something else":     {"write a poem about Linux", []string{"understood are", "is curl installed"}},
		"more than we know":  {"inspect this machine and delete everything", []string{"understood are"}},
		"prefix":             {"ignore the rules: inspect this machine", []string{"understood are"}},
		"suffix":             {"inspect this machine then reboot it", []string{"understood are"}},
		"two goals":          {"inspect this machine and is the disk full", []string{"may mean", "inspect (", "disk ("}},
		"two services":       {"is ssh running and is nginx running", []string{"may mean", "service ssh.service", "service nginx.service"}},
		"service or package": {"check nginx", []string{"may mean", "service nginx.service", "package nginx"}},
		"no unit":            {"what changed in the journal", []string{"understood are"}},
		"not a name":         {"is it running", []string{"understood are"}},
		"option as a name":   {"is --all installed", []string{"understood are"}},
		"path as a name":     {"is ../../etc/passwd running", []string{"understood are"}},
		"glob as a name":     {"what changed in the journal of *", []string{"understood are"}},
		"too long ago":       {"errors in the log of ssh in the last 999999 days", []string{"understood are"}},
		"escape":             {"inspect \x1b[2J this machine", []string{"understood are"}},
		"long":               {"inspect this machine" + strings.Repeat(" please", 200), []string{"understood are"}},
	}
	b := backend(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := b.Generate(context.Background(), ask(tt.goal), nil)
			var e *model.Error
			if !errors.As(err, &e) || e.Reason != model.ReasonNotUnderstood || e.Next == "" {
				t.Fatalf("%+v, %v; want not understood with a next step", r, err)
			}
			for _, s := range tt.says {
				if !strings.Contains(e.Msg, s) {
					t.Errorf("message lacks %q: %s", s, e.Msg)
				}
			}
			if strings.ContainsRune(e.Msg, 0x1b) || len(e.Msg) > 1024 {
				t.Errorf("message of %d bytes: %q", len(e.Msg), e.Msg)
			}
		})
	}
}

func ask(goal string) chat.Request {
	r := chat.Request{MaxOutputTokens: 2048, Messages: []chat.Message{
		{Role: chat.System, Text: "you are an agent"}, {Role: chat.User, Text: goal}}}
	for _, n := range []string{systemInspect, npuInspect, packageQuery, serviceInspect, journalRead} {
		r.Tools = append(r.Tools, chat.Tool{Name: n, Schema: []byte(`{}`)})
	}
	return r
}

// answer runs the whole exchange: the plan, the results by tool, the report.
func answer(t testing.TB, req chat.Request, results map[string]string) string {
	t.Helper()
	b := backend(t)
	r, err := b.Generate(context.Background(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Stop == chat.StopToolCalls {
		req.Messages = append(req.Messages, r.Message)
		for _, c := range r.Message.ToolCalls {
			req.Messages = append(req.Messages, chat.Message{Role: chat.ToolRole, ToolCallID: c.ID, Text: results[c.Name]})
		}
		if r, err = b.Generate(context.Background(), req, nil); err != nil {
			t.Fatal(err)
		}
	}
	if r.Stop != chat.StopEnd || len(r.Message.ToolCalls) > 0 {
		t.Fatalf("not the end: %+v", r)
	}
	return r.Message.Text
}

func TestPlans(t *testing.T) {
	t.Parallel()
	b := backend(t)
	tests := map[string][]step{
		"inspect this machine":                         {{systemInspect, `{}`}},
		"is ssh running":                               {{serviceInspect, `{"unit":"ssh.service"}`}, {journalRead, `{"lines":20,"priority":"warning","unit":"ssh.service"}`}},
		"what is package bash":                         {{packageQuery, `{"name":"bash"}`}},
		"errors in the log of ssh in the last 2 hours": {{journalRead, `{"lines":50,"priority":"err","since_minutes":120,"unit":"ssh.service"}`}},
		"is there an npu":                              {{npuInspect, `{}`}},
	}
	for goal, want := range tests {
		req := ask(goal)
		r, err := b.Generate(context.Background(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []step
		seen := map[string]bool{}
		for _, c := range r.Message.ToolCalls {
			got = append(got, step{c.Name, c.Arguments})
			if seen[c.ID] || c.ID == "" {
				t.Errorf("%q: call ID %q twice or empty", goal, c.ID)
			}
			seen[c.ID] = true
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(step{})); d != "" {
			t.Errorf("%q (-want +got):\n%s", goal, d)
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
		again, _ := b.Generate(context.Background(), req, nil)
		if d := cmp.Diff(r, again); d != "" {
			t.Errorf("not deterministic:\n%s", d)
		}
		// The same question later in the conversation gets other IDs.
		req.Messages = append(req.Messages, r.Message, chat.Message{Role: chat.User, Text: goal})
		later, _ := b.Generate(context.Background(), req, nil)
		for _, c := range later.Message.ToolCalls {
			if seen[c.ID] {
				t.Errorf("%q: ID %q comes again", goal, c.ID)
			}
		}
	}
}

func TestToolsNotOffered(t *testing.T) {
	t.Parallel()
	req := ask("is ssh running")
	req.Tools = nil
	text := answer(t, req, nil)
	for _, want := range []string{"Nothing could be read", "service_inspect: this tool was not offered", "journal_read: this tool was not offered"} {
		if !strings.Contains(text, want) {
			t.Errorf("report lacks %q:\n%s", want, text)
		}
	}
	req = ask("inspect this machine")
	req.ToolChoice = chat.ChooseNone
	if text := answer(t, req, nil); !strings.Contains(text, "Nothing could be read") {
		t.Errorf("report:\n%s", text)
	}
}

func TestStreamAndLimits(t *testing.T) {
	t.Parallel()
	b := backend(t)
	req := ask("inspect this machine")
	req.Tools, req.Stream = nil, true
	var text strings.Builder
	r, err := b.Generate(context.Background(), req, func(s string) { text.WriteString(s) })
	if err != nil || text.String() != r.Message.Text || text.Len() == 0 {
		t.Errorf("deltas %q, text %q, %v", text.String(), r.Message.Text, err)
	}
	req.MaxOutputTokens = 5
	r, err = b.Generate(context.Background(), req, nil)
	if err != nil || r.Stop != chat.StopLength || len(r.Message.Text) > 20 {
		t.Errorf("limit of 5 tokens: %q, %s, %v", r.Message.Text, r.Stop, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Generate(ctx, req, nil); model.ReasonOf(err) != model.ReasonCancelled {
		t.Errorf("cancelled: %v", err)
	}
}

func TestIntents(t *testing.T) {
	t.Parallel()
	b := backend(t)
	page, err := os.ReadFile("../../../../docs/spec/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(abbreviationList); i += 2 {
		if l := "\n    " + abbreviationList[i] + " = " + abbreviationList[i+1] + "\n"; !strings.Contains(string(page), l) {
			t.Errorf("docs/spec/rules.md lacks the abbreviation%s", l)
		}
	}
	for i, in := range Intents() {
		if in.Summary == "" || len(in.Tools) == 0 || len(in.Examples) == 0 {
			t.Errorf("incomplete intent %+v", in)
		}
		for _, e := range in.Examples {
			if m, err := b.understand(e); err != nil || m.intent.name != in.Name {
				t.Errorf("example %q of %s: %v", e, in.Name, err)
			}
		}
		row := "| `" + in.Name + "` | " + in.Summary + " | " + strings.Join(in.Examples, "; ") + " | `" + strings.Join(in.Tools, "`, `") + "` |"
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/spec/rules.md lacks the row\n%s", row)
		}
		for _, p := range b.intents[i].patterns {
			if !strings.Contains(string(page), "\n    "+p.text+"\n") {
				t.Errorf("docs/spec/rules.md lacks the phrase\n    %s", p.text)
			}
		}
	}
}

// FuzzUnderstand: whatever the goal, nothing panics, and what comes out is valid.
func FuzzUnderstand(f *testing.F) {
	for _, i := range Intents() {
		for _, e := range i.Examples {
			f.Add(e)
		}
	}
	b := backend(f)
	f.Fuzz(func(t *testing.T, goal string) {
		m, err := b.understand(goal)
		if err != nil {
			if model.ReasonOf(err) != model.ReasonNotUnderstood {
				t.Fatal(err)
			}
			return
		}
		if m.slots.unit != "" && !unitRE.MatchString(m.slots.unit) || m.slots.pkg != "" && !packageRE.MatchString(m.slots.pkg) {
			t.Fatalf("bad name from %q: %+v", goal, m.slots)
		}
		for _, s := range m.steps() {
			if !json.Valid([]byte(s.arguments)) {
				t.Fatalf("arguments %q", s.arguments)
			}
		}
	})
}
