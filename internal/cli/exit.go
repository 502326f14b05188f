package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/termsafe"
)

// ExitFinding is the exit code of a check that found what it looked for: a
// policy that doesn't parse, a failed policy test, an unformatted file, an
// unsafe host.
const ExitFinding = 22

// Exit is an error with an exit code of its own: the end of a run, a finding.
type Exit struct {
	Code int
	Kind string // for --json: an end reason, or "finding"
	Msg  string // empty: everything was said
	Next string
}

// Error renders the message.
func (x *Exit) Error() string { return x.Msg }

// Report prints err on standard error and returns the process's exit code.
func (e *Env) Report(err error) int {
	if err == nil {
		return 0
	}
	code, kind, msg, next := fault.KindOf(err).ExitCode(), string(fault.KindOf(err)), err.Error(), fault.NextOf(err)
	var x *Exit
	if errors.As(err, &x) {
		code, kind, msg, next = x.Code, x.Kind, x.Msg, x.Next
	}
	if e.JSON {
		doc, _ := json.Marshal(map[string]any{"error": map[string]any{"kind": kind, "message": msg, "next": next, "exit_code": code}})
		fmt.Fprintf(e.Err, "%s\n", termsafe.JSON(doc))
		return code
	}
	if msg == "" {
		return code
	}
	st := e.look(e.ErrTerm)
	fmt.Fprintf(e.Err, "%s %s\n", st.Bad("agentos:"), termsafe.Text(msg))
	if next != "" {
		fmt.Fprintf(e.Err, "%s %s\n", st.Bold("next:"), termsafe.Text(next))
	}
	return code
}
