package run

import (
	"errors"
	"strings"
	"testing"

	"agentos/internal/cli"
	"agentos/internal/cli/clitest"
	"agentos/internal/lib/sandboxplan"
)

// TestJudge: one difference is a finding, and neither it nor what the sandbox
// said harms a terminal.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := sandboxplan.Finding{Check: "uid", Plan: "900", Kernel: "900", Agree: true}
	bad := sandboxplan.Finding{Check: "bind /usr", Plan: "read", Kernel: "read, write", Detail: "\x1b]0;x\a\u202e\nok"}
	for _, json := range []bool{false, true} {
		e, out := clitest.Env(100)
		e.JSON = json
		if err := judge(e, []sandboxplan.Finding{good}); err != nil {
			t.Error(err)
		}
		var x *cli.Exit
		if err := judge(e, []sandboxplan.Finding{good, bad}); !errors.As(err, &x) || x.Code != cli.ExitFinding || x.Next == "" {
			t.Errorf("json %v: %v", json, err)
		}
		text := out.String()
		if !strings.Contains(text, "read, write") || strings.ContainsAny(text, "\x1b\a\u202e") || !json && !strings.Contains(text, "✗") {
			t.Errorf("%q", text)
		}
	}
}

func TestBounded(t *testing.T) {
	t.Parallel()
	w := &bounded{most: 3}
	if _, err := w.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("d")); err == nil || string(w.b) != "abc" {
		t.Errorf("%v %q", err, w.b)
	}
}

func TestPrivate(t *testing.T) {
	t.Parallel()
	got := strings.Join(private("/h/.local/state", "/h"), " ")
	if got != "/h/.local/state /h /h/.ssh /h/.gnupg /h/.aws" {
		t.Error(got)
	}
	if got := private("", ""); len(got) != 0 {
		t.Error(got)
	}
}
