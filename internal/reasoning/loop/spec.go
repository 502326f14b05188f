package loop

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"

	"agentos/internal/lib/canon"
	"agentos/internal/lib/chat"
)

// MaxSpecBytes bounds an encoded Spec.
const MaxSpecBytes = 2 << 20

const maxTokens = 1 << 40 // where counting stops; no limit is that high

// Spec is one run's order, as it comes on the loop's standard input.
type Spec struct {
	Run    string `json:"run"`    // run ID, for messages only
	Goal   string `json:"goal"`   // the owner's words
	System string `json:"system"` // system prompt; empty: none
	Model  string `json:"model"`  // name sent with each request; empty: the endpoint's default
	Stream bool   `json:"stream"` // ask for streamed answers
	Limits Limits `json:"limits"`
}

// Limits bound a run. 0 is the default in parentheses; the bound after it is the
// highest value that is accepted.
type Limits struct {
	Iterations   int `json:"iterations"`    // model turns (8), 500
	ToolCalls    int `json:"tool_calls"`    // in the run (16), 4096
	ElapsedS     int `json:"elapsed_s"`     // seconds (120), 86400
	OutputTokens int `json:"output_tokens"` // in a turn (2048), 1 Mi
	TotalTokens  int `json:"total_tokens"`  // input and output of the run (65536), 1 Gi
	Parallel     int `json:"parallel"`      // read-only calls at once (4), 16
}

// bounds lists each limit with its default and highest value.
func (l *Limits) bounds() []struct {
	name     string
	v        *int
	def, max int
} {
	return []struct {
		name     string
		v        *int
		def, max int
	}{
		{"iterations", &l.Iterations, 8, 500},
		{"tool_calls", &l.ToolCalls, 16, 4096},
		{"elapsed_s", &l.ElapsedS, 120, 86400},
		{"output_tokens", &l.OutputTokens, 2048, 1 << 20},
		{"total_tokens", &l.TotalTokens, 65536, 1 << 30},
		{"parallel", &l.Parallel, 4, 16},
	}
}

func (s Spec) withDefaults() Spec {
	for _, b := range s.Limits.bounds() {
		if *b.v == 0 {
			*b.v = b.def
		}
	}
	return s
}

// ParseSpec reads one Spec to the end of r: one JSON object, no unknown or
// duplicate names, at most MaxSpecBytes. Limits are checked and defaults filled.
func ParseSpec(r io.Reader) (Spec, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxSpecBytes+1))
	if err != nil {
		return Spec{}, fmt.Errorf("read run spec: %w", err)
	}
	if len(b) > MaxSpecBytes {
		return Spec{}, fmt.Errorf("read run spec: more than %d bytes", MaxSpecBytes)
	}
	if _, err := canon.Object(b); err != nil { // depth, numbers, one object
		return Spec{}, fmt.Errorf("parse run spec: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(b, &s, json.RejectUnknownMembers(true)); err != nil {
		return Spec{}, fmt.Errorf("parse run spec: %w", err)
	}
	return s.withDefaults(), s.check()
}

func (s *Spec) check() error {
	switch {
	case s.Goal == "":
		return fmt.Errorf("parse run spec: no goal")
	case len(s.Goal) > chat.MaxText || len(s.System) > chat.MaxText:
		return fmt.Errorf("parse run spec: goal or system prompt longer than %d bytes", chat.MaxText)
	case len(s.Run) > chat.MaxNameLen || len(s.Model) > chat.MaxNameLen:
		return fmt.Errorf("parse run spec: run ID or model name longer than %d bytes", chat.MaxNameLen)
	}
	for _, b := range s.Limits.bounds() {
		if *b.v < 0 || *b.v > b.max {
			return fmt.Errorf("parse run spec: limit %q is %d, want 0 to %d", b.name, *b.v, b.max)
		}
	}
	return nil
}
