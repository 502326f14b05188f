package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
	"agentos/internal/trusted/modelcontext"
)

// serveChat is the agent's model endpoint: HTTP/1.1 on the one connection.
func (s *session) serveChat(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.completions)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "not_found", clip(r.Method+" "+r.URL.Path, 200)+" is not served here; use POST /v1/chat/completions")
	})
	one := newOneConn(s.chat)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 32 << 10,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   one.state,
	}
	err := srv.Serve(one)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// completions answers one turn: decode by the allow list, propose, generate
// when admitted, answer when the outcome is durable.
func (s *session) completions(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, chat.MaxRequestBytes+1))
	if err != nil {
		writeError(w, http.StatusBadRequest, "malformed", "the request's body could not be read")
		return
	}
	req, err := completions.DecodeRequest(body)
	if err != nil {
		writeCodecError(w, err)
		return
	}
	if req.MaxOutputTokens < 1 || req.MaxOutputTokens > s.hello.MaxOutput {
		req.MaxOutputTokens = s.hello.MaxOutput
	}
	req.Model = s.hello.Model
	if err := req.Check(); err != nil {
		writeError(w, http.StatusBadRequest, "malformed", err.Error())
		return
	}
	out := &turnWriter{w: w, stream: req.Stream, usage: req.IncludeUsage, model: s.hello.Model}
	resp, fail := s.generate(r.Context(), req.Request, out.text)
	if fail != nil {
		out.fail(*fail)
		return
	}
	out.finish(resp)
}

// failure is an error in the protocol's own form.
type failure struct {
	status        int
	code, message string
}

// generate proposes a model call and carries it out when it was admitted.
func (s *session) generate(ctx context.Context, req chat.Request, sink func(string)) (chat.Response, *failure) {
	mc, err := modelcontext.Build(req)
	if err != nil {
		return chat.Response{}, &failure{http.StatusBadRequest, "malformed", err.Error()}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id, p, err := s.gate.propose(cancel)
	if err == nil {
		err = s.gate.send(gatewire.Up{Model: &gatewire.Model{ID: id, MaxOutput: req.MaxOutputTokens, Stream: req.Stream}}, mc.Bytes)
	}
	if err != nil {
		return chat.Response{}, &failure{http.StatusServiceUnavailable, "unavailable", err.Error()}
	}
	var resp chat.Response
	var r reply
	select {
	case <-p.begin:
		resp = s.perform(ctx, id, p, req, sink)
		r = <-p.answer
	case r = <-p.answer: // refused
	case <-ctx.Done():
		_ = s.gate.send(gatewire.Up{Cancel: &gatewire.Cancel{ID: id}}, nil)
		r = s.waitCancelled(p, id)
	}
	if f := failed(r); f != nil {
		return chat.Response{}, f
	}
	return resp, nil
}

// waitCancelled waits out a proposal that the agent gave up on, also one that
// was admitted in that very moment.
func (s *session) waitCancelled(p *proposal, id uint64) reply {
	select {
	case <-p.begin:
		if p.conn != nil {
			_ = p.conn.Close()
		}
		_ = s.gate.send(gatewire.Up{ModelDone: &gatewire.ModelDone{ID: id, Status: "cancelled"}}, nil)
		return <-p.answer
	case r := <-p.answer:
		return r
	}
}

// perform makes the admitted model call and reports how it ended.
func (s *session) perform(ctx context.Context, id uint64, p *proposal, req chat.Request, sink func(string)) chat.Response {
	s.gate.useConn(p.conn)
	backendReq := req
	backendReq.Stream = req.Stream || s.hello.Stream
	resp, err := s.backend.Generate(ctx, backendReq, func(t string) {
		_ = s.gate.send(gatewire.Up{Text: &gatewire.Text{ID: id, Text: clip(t, 32<<10)}}, nil)
		if req.Stream {
			sink(t)
		}
	})
	if c, derr := s.gate.Dial(ctx); derr == nil {
		_ = c.Close() // the backend never took it
	}
	done := gatewire.ModelDone{ID: id, Status: "ok"}
	if err == nil {
		if cerr := resp.Check(); cerr != nil {
			err = &model.Error{Reason: model.ReasonMalformed, Msg: cerr.Error()}
		}
	}
	usage := resp.Usage
	var blob []byte
	if err != nil {
		usage = describe(&done, err)
		if why := s.gate.aborted(p); why != "" {
			done.Status = why
		}
	} else if blob, err = encodeResponse(resp); err != nil {
		done.Status, done.Reason, done.Message = "error", string(model.ReasonMalformed), err.Error()
	}
	done.InputTokens, done.OutputTokens, done.Estimated = int64(usage.InputTokens), int64(usage.OutputTokens), usage.Estimated
	if err := s.gate.send(gatewire.Up{ModelDone: &done}, blob); err != nil {
		// The wire is gone, or the response does not fit it: close the call.
		_ = s.gate.send(gatewire.Up{ModelDone: &gatewire.ModelDone{ID: id, Status: "error", Reason: string(model.ReasonTooLarge),
			Message: "the response does not fit the gate's wire", InputTokens: done.InputTokens, OutputTokens: done.OutputTokens}}, nil)
	}
	return resp
}

// describe fills done from a backend's error and returns the usage that the
// server had reported by then.
func describe(done *gatewire.ModelDone, err error) chat.Usage {
	var e *model.Error
	if !errors.As(err, &e) {
		e = &model.Error{Reason: model.ReasonServer, Msg: err.Error()}
	}
	done.Reason, done.Message, done.Next = string(e.Reason), clip(e.Msg, 2048), clip(e.Next, 1024)
	switch e.Reason {
	case model.ReasonTimeout:
		done.Status = "timeout"
	case model.ReasonCancelled:
		done.Status = "cancelled"
	default:
		done.Status = "error"
	}
	if e.Usage != nil {
		return *e.Usage
	}
	return chat.Usage{Estimated: true}
}

// failed renders an answer that is no success in the protocol's form. The code
// is what a client can act on: a budget's resource, a stage, a backend's reason.
func failed(r reply) *failure {
	switch {
	case r.err != nil:
		return &failure{http.StatusServiceUnavailable, "unavailable", r.err.Error()}
	case r.Denied != nil:
		msg := fmt.Sprintf("denied at %s: %s", r.Denied.Stage, r.Denied.Reason)
		if r.Denied.Next != "" {
			msg += "; next: " + r.Denied.Next
		}
		if r.Denied.Kind == "limit" {
			return &failure{http.StatusTooManyRequests, "budget_" + r.Denied.Resource, msg}
		}
		return &failure{http.StatusForbidden, "denied_" + r.Denied.Stage, msg}
	case r.Status == "ok":
		return nil
	}
	code, msg, ok := strings.Cut(r.Reason, ": ")
	if !ok {
		code, msg = r.Status, r.Reason
	}
	return &failure{http.StatusBadGateway, code, msg}
}
