package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/client"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func env(vars map[string]string) (*Env, *bytes.Buffer, *bytes.Buffer) {
	var out, errs bytes.Buffer
	return &Env{Out: &out, Err: &errs, Getenv: func(k string) string { return vars[k] }}, &out, &errs
}

// Colours need a terminal and nobody who says no.
func TestColours(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		term bool
		vars map[string]string
		args []string
		want bool
	}{
		"terminal":         {term: true, want: true},
		"pipe":             {},
		"NO_COLOR":         {term: true, vars: map[string]string{"NO_COLOR": "1"}},
		"dumb":             {term: true, vars: map[string]string{"TERM": "dumb"}},
		"flag":             {term: true, args: []string{"--no-color"}},
		"json":             {term: true, args: []string{"--json"}},
		"help on terminal": {term: true, args: []string{"--help"}, want: true},
		"help in pipe":     {args: []string{"--help"}},
	} {
		e, out, errs := env(tc.vars)
		e.OutTerm, e.ErrTerm = tc.term, tc.term
		root := Root(e)
		root.AddCommand(&cobra.Command{Use: "x", Run: func(*cobra.Command, []string) { e.Printf("%s", e.Style.Good("ok")) }})
		root.SetArgs(append([]string{"x"}, tc.args...))
		if err := root.ExecuteContext(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "\x1b["); got != tc.want {
			t.Errorf("%s: coloured %v: %q", name, got, out)
		}
		e.Report(fault.New(fault.Usage, "n", "m"))
		if name != "json" && !strings.HasPrefix(name, "help") && strings.Contains(errs.String(), "\x1b[") != tc.want {
			t.Errorf("%s: error coloured wrongly: %q", name, errs)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		code int
		want string
	}{
		"none":    {nil, 0, ""},
		"fault":   {fault.New(fault.Denied, "ask", "open %q", "x"), 3, "agentos: open \"x\"\nnext: ask\n"},
		"hostile": {fault.New(fault.Corrupt, "do\x1b[2J", "bad\x1b]0;x\x07\nmore\u202e"), 9, "agentos: bad␛]0;x␇\nmore\\u{202e}\nnext: do␛[2J\n"},
		"plain":   {errors.New("x"), 1, "agentos: x\n"},
		"exit":    {&Exit{Code: 11, Kind: "limit_iterations", Msg: "run ended", Next: "n"}, 11, "agentos: run ended\nnext: n\n"},
		"silent":  {&Exit{Code: 22}, 22, ""},
	} {
		e, out, errs := env(nil)
		if code := e.Report(tc.err); code != tc.code || errs.String() != tc.want || out.Len() > 0 {
			t.Errorf("%s: %d %q", name, code, errs)
		}
	}
	e, _, errs := env(nil)
	e.JSON = true
	e.Report(fault.New(fault.Usage, "n", "m\x1b\u202e"))
	if want := `{"error":{"exit_code":2,"kind":"usage","message":"m\u001b\u202e","next":"n"}}` + "\n"; errs.String() != want {
		t.Errorf("%q", errs)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	e, out, _ := env(nil)
	e.Width = 24
	table := e.NewTable("A", "WIDE", "LAST")
	table.Row("日本", "x\ny", "this is far too long for it")
	table.Row("b", "", "")
	table.Write(out, " ")
	want := " A     WIDE  LAST\n 日本  x⏎y   this is fa…\n b\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		340 * time.Microsecond: "340 µs", 1800 * time.Microsecond: "1.8 ms", 12 * time.Millisecond: "12 ms",
		1432 * time.Millisecond: "1.4 s", 125 * time.Second: "2 m 05 s",
	} {
		if got := Took(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
	if Bytes(5) != "5 B" || Bytes(2345) != "2.3 KiB" || Bytes(3<<20) != "3.0 MiB" || Count(1, "call") != "1 call" || When(time.Time{}) != "-" {
		t.Error("units")
	}
	e, out, _ := env(nil)
	e.Width = 30
	e.Para("  ", "one two three four five six seven\nnext\x1b line\n")
	if d := cmp.Diff("  one two three four five six\n  seven\n  next␛ line\n", out.String()); d != "" {
		t.Error(d)
	}
}

// JSON output has the same bytes each time.
func TestJSONIsStable(t *testing.T) {
	t.Parallel()
	want := `{"run":"r","notice":{"text":"\u202e"}}` + "\n"
	for range 20 {
		e, out, _ := env(nil)
		if err := e.PrintJSONLine(&agentosv1.RunEvent{Run: "r", Event: &agentosv1.RunEvent_Notice{Notice: &agentosv1.Notice{Text: "\u202e"}}}); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Fatalf("%q", out)
		}
	}
	e, _, _ := env(nil)
	e.Out = broken{}
	if err := e.PrintJSON(&agentosv1.Notice{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a full disk: %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestSettings(t *testing.T) {
	t.Parallel()
	e, _, _ := env(nil)
	root := Root(e)
	root.AddCommand(&cobra.Command{Use: "x", Run: func(*cobra.Command, []string) {}})
	root.SetArgs([]string{"--backend=rules", "x", "--set", "a.b=1", "--state-dir", "s", "--backend", "auto"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	want := []setting.Set{{Key: "model.backend", Value: "rules", Flag: "--backend"}, {Key: "a.b", Value: "1", Flag: "--set"},
		{Key: "state_dir", Value: "s", Flag: "--state-dir"}, {Key: "model.backend", Value: "auto", Flag: "--backend"}}
	if d := cmp.Diff(want, e.Sets); d != "" {
		t.Error(d)
	}
}

type noConnect struct{ err error }

func (n noConnect) Connect(context.Context, []setting.Set) (*client.Session, error) {
	return nil, n.err
}

func TestWithoutSession(t *testing.T) {
	t.Parallel()
	e, _, _ := env(nil)
	e.Connect = noConnect{fault.New(fault.Unavailable, "n", "find agentosd")}
	err := e.With(context.Background(), func(*client.Session) error { t.Error("called"); return nil })
	if fault.KindOf(err) != fault.Unavailable {
		t.Errorf("%v", err)
	}
}
