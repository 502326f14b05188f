package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
	"agentos/internal/lib/fault"
)

// explain turns whatever ended the call into a *model.Error.
func (c *call) explain(err error) error {
	var codec *completions.Error
	hasCodec := errors.As(err, &codec)
	var typed *model.Error
	switch {
	case errors.As(err, &typed):
		return typed
	case hasCodec && codec.Kind != completions.Read && codec.Kind != completions.Truncated:
		return convert(codec)
	}
	out := c.transport(err)
	if hasCodec {
		out.Usage = codec.Usage
	}
	return out
}

// transport explains a broken connection: by the clock, or by how far it got.
func (c *call) transport(err error) *model.Error {
	if errors.Is(context.Cause(c.ctx), errIdle) {
		return &model.Error{Reason: model.ReasonTimeout, Next: "see whether the model server hangs", Err: errIdle,
			Msg: fmt.Sprintf("the model server sent nothing for %v", c.cfg.IdleTimeout)}
	}
	if e := model.FromContext(c.ctx); e != nil {
		return e
	}
	var d *dialError
	switch {
	case errors.As(err, &d):
		next := fault.NextOf(d.error)
		if next == "" {
			next = "start the model server, or check the path of its socket"
		}
		return &model.Error{Reason: model.ReasonUnavailable, Msg: clean("connect to the model server: " + d.Error()), Next: next, Err: d.error}
	case c.got.Load() == 0:
		return &model.Error{Reason: model.ReasonUnavailable, Msg: "the model server closed the connection without an answer",
			Next: "see the model server's log", Err: err}
	case completions.KindOf(err) == completions.Truncated || completions.KindOf(err) == completions.Read ||
		errors.Is(err, io.ErrUnexpectedEOF):
		return &model.Error{Reason: model.ReasonTruncated, Msg: "the model server's answer ended too early",
			Next: "see the model server's log", Err: err}
	default:
		return &model.Error{Reason: model.ReasonMalformed, Msg: clean("the model server's answer is not HTTP: " + err.Error()),
			Next: "check that the socket is a Chat Completions server's", Err: err}
	}
}

// convert maps the codec's kinds.
func convert(err error) error {
	var e *completions.Error
	if !errors.As(err, &e) {
		return &model.Error{Reason: model.ReasonMalformed, Msg: clean(err.Error()), Err: err}
	}
	out := &model.Error{Reason: model.ReasonMalformed, Msg: clean(e.Error()), Usage: e.Usage, Err: err,
		Next: "check that the socket is a Chat Completions server's"}
	switch e.Kind {
	case completions.TooLarge:
		out.Reason, out.Next = model.ReasonTooLarge, "ask for less, or lower the output limit"
	case completions.Server:
		out.Reason, out.Next = model.ReasonServer, "see the model server's log"
	case completions.Context:
		out.Reason, out.Next = model.ReasonContext, nextContext
	}
	return out
}

const nextContext = "shorten the goal or the tool results, or use a model with a larger context"

// statusError explains an answer other than 200.
func statusError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil && len(body) == 0 {
		body = nil // the status says enough
	}
	s := completions.DecodeError(body)
	e := &model.Error{Reason: model.ReasonRejected, Msg: clean(fmt.Sprintf("status %d: %s", resp.StatusCode, s)),
		Next: "see the model server's log"}
	switch code := resp.StatusCode; {
	case code >= 500:
		e.Reason = model.ReasonServer
		if code == http.StatusServiceUnavailable {
			e.Next = "wait until the model server has loaded its model, then try again"
		}
	case s.ContextExceeded():
		e.Reason, e.Next = model.ReasonContext, nextContext
	case code == http.StatusTooManyRequests:
		e.Next = "try again later"
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 && n < 86400 {
			e.Next = fmt.Sprintf("try again in %d s", n)
		}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Next = "the model server wants a key and this backend has none: start it without, on a socket that only its owner can reach"
	case code == http.StatusNotFound:
		e.Next = "check the model's name, and that the server offers Chat Completions"
	case code >= 300 && code < 400:
		e.Next = "redirects are not followed: configure the server's own socket"
	case code < 300:
		e.Reason = model.ReasonMalformed
	}
	return e
}

func clean(s string) string { return chat.Clean(s, 512) }
