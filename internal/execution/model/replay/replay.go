// Package replay is the model backend that answers from a script: for tests,
// for demonstrations, and to run a recorded conversation again.
//
// State owned: which turn is next. Imports: execution/model, lib/chat,
// lib/chat/completions, lib/fault, go-json-experiment/json. Imported by: the
// shim. Portable. Invariants: the same requests get the same answers; a turn
// whose expectation fails is not used up and answers nothing.
// Format: docs/spec/replay.md. Tests: replay_test.go, FuzzParse.
package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
)

// Backend answers by a script. Not safe for concurrent use.
type Backend struct {
	script Script
	next   int
}

// New starts at the script's first turn.
func New(s Script) *Backend { return &Backend{script: s} }

// Name is "replay".
func (*Backend) Name() string { return "replay" }

// Generate answers with the next turn. See model.Backend. Besides what the turn
// itself says, the reasons are exhausted, and rejected for an expectation that
// the request does not meet.
func (b *Backend) Generate(ctx context.Context, req chat.Request, sink func(string)) (chat.Response, error) {
	if err := model.FromContext(ctx); err != nil {
		return chat.Response{}, err
	}
	if b.next >= len(b.script.Turns) {
		return chat.Response{}, &model.Error{
			Reason: model.ReasonExhausted, Msg: fmt.Sprintf("the replay script has only %d turns", len(b.script.Turns)),
			Next: "add turns to the script",
		}
	}
	t := b.script.Turns[b.next]
	if problem := t.Expect.check(req); problem != "" {
		return chat.Response{}, &model.Error{
			Reason: model.ReasonRejected, Msg: fmt.Sprintf("turn %d of the replay script: %s", b.next+1, problem),
			Next: "compare the script's expectation with the run",
		}
	}
	b.next++
	return t.answer(req, sink)
}

func (t Turn) answer(req chat.Request, sink func(string)) (chat.Response, error) {
	if !req.Stream || sink == nil {
		sink = func(string) {}
	}
	var out chat.Response
	var err error
	switch {
	case t.Fail != nil:
		return out, &model.Error{Reason: t.Fail.Reason, Msg: chat.Clean(t.Fail.Message, 512), Next: "the replay script says so"}
	case t.Events != nil:
		return typed(completions.ReadStream(strings.NewReader(*t.Events), size(req), sink))
	case t.Body != nil:
		out, err = typed(completions.DecodeResponse([]byte(*t.Body), size(req)))
	default:
		out = *t.Response
		out.Message.ToolCalls = slices.Clone(out.Message.ToolCalls)
	}
	if err == nil && out.Message.Text != "" {
		sink(out.Message.Text)
	}
	return out, err
}

// size stands for the encoded request's, for the estimate of its tokens.
func size(req chat.Request) int {
	n := 0
	for _, m := range req.Messages {
		n += len(m.Text)
	}
	return n
}

// typed gives the codec's errors their reasons.
func typed(r chat.Response, err error) (chat.Response, error) {
	var e *completions.Error
	if !errors.As(err, &e) {
		return r, err
	}
	reasons := map[completions.Kind]model.Reason{
		completions.TooLarge: model.ReasonTooLarge, completions.Truncated: model.ReasonTruncated,
		completions.Server: model.ReasonServer, completions.Context: model.ReasonContext,
	}
	reason, ok := reasons[e.Kind]
	if !ok {
		reason = model.ReasonMalformed
	}
	return r, &model.Error{Reason: reason, Msg: chat.Clean(e.Error(), 512), Usage: e.Usage, Err: err, Next: "the replay script says so"}
}
