package run

import (
	"errors"
	"testing"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/lib/fault"
)

func TestExitOf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		x    *agentosv1.RunExited
		code int
		msg  string
	}{
		"well":               {&agentosv1.RunExited{Reason: "completed"}, 0, ""},
		"with a code":        {&agentosv1.RunExited{Reason: "completed", Code: 7}, 7, ""},
		"by a signal":        {&agentosv1.RunExited{Reason: "completed", Code: -1, Signal: 9}, 137, ""},
		"not found":          {&agentosv1.RunExited{Reason: "completed", Code: 127, Detail: "no x"}, 127, "no x"},
		"stopped by TERM":    {&agentosv1.RunExited{Reason: "cancelled", Code: -1, Signal: 15}, 143, "run ended: cancelled"},
		"stopped, own code":  {&agentosv1.RunExited{Reason: "cancelled", Code: 3}, 3, "run ended: cancelled"},
		"stopped, ended 0":   {&agentosv1.RunExited{Reason: "cancelled"}, 130, "run ended: cancelled"},
		"over a limit":       {&agentosv1.RunExited{Reason: "limit_elapsed", Signal: 9}, 13, "run ended: limit_elapsed"},
		"crashed, though 0":  {&agentosv1.RunExited{Reason: "crashed", Detail: "the shim"}, 21, "run ended: crashed: the shim"},
		"a reason of no one": {&agentosv1.RunExited{Reason: "other"}, 1, "run ended: other"},
	} {
		err := exitOf(tt.x)
		var x *cli.Exit
		if tt.code == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errors.As(err, &x) || x.Code != tt.code || x.Msg != tt.msg {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

func TestNotRun(t *testing.T) {
	t.Parallel()
	for code, err := range map[int]error{
		127: fault.New(fault.NotFound, "n", "find program %q", "x"),
		126: fault.New(fault.Denied, "n", "command: run %q: exec format error", "x"),
		0:   fault.New(fault.NotFound, "n", "find profile %q", "x"),
		-1:  fault.New(fault.Internal, "", "command: run %q", "x"),
	} {
		got := notRun(err)
		var x *cli.Exit
		if ok := errors.As(got, &x); ok != (code > 0) || ok && (x.Code != code || x.Next != "n") || !ok && got != err {
			t.Errorf("%d: %+v", code, got)
		}
	}
}

// Of the environment only what holds no secret goes anywhere.
func TestPassable(t *testing.T) {
	t.Parallel()
	env := map[string]string{"TERM": "xterm", "LANG": "C", "AWS_SECRET_ACCESS_KEY": "x", "OPENAI_API_KEY": "x", "SSH_AUTH_SOCK": "x", "LC_ALL": string(make([]byte, 300))}
	got := passable(func(k string) string { return env[k] })
	for k := range got {
		if k != "TERM" && k != "LANG" {
			t.Errorf("passes %s", k)
		}
	}
	if got["TERM"] != "xterm" {
		t.Error(got)
	}
}
