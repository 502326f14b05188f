package modeltest

import (
	"bytes"
	"fmt"
	"strings"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
)

// Fault names one misbehaviour of a server.
type Fault string

// The faults. Those that real servers showed are listed with them in
// docs/spec/replay.md.
const (
	// In the body, status 200.
	ErrorEvent    Fault = "error_event"    // an error event after some text, then the end
	ErrorLine     Fault = "error_line"     // the same as llama-server's own "error:" field
	ContextEvent  Fault = "context_event"  // the context is exceeded, inside a 200
	NoEnd         Fault = "no_end"         // ends cleanly without finish reason or [DONE]
	HalfEvent     Fault = "half_event"     // ends inside an event
	Bare          Fault = "bare"           // no usage, index, created, id
	SplitKey      Fault = "split_key"      // argument fragments split inside a key; marker text inside strings
	NoIndex       Fault = "no_index"       // fragments without index
	NotJSON       Fault = "not_json"       // plain text
	NotUTF8       Fault = "not_utf8"       //
	Deep          Fault = "deep"           // nested 100,000 levels
	HugeArguments Fault = "huge_arguments" // 10 MB of arguments
	TwoChoices    Fault = "two_choices"    // two answers

	// In the status.
	ContextStatus Fault = "context_status" // 400 with counts
	Unauthorized  Fault = "unauthorized"   // 401
	NotFound      Fault = "not_found"      // 404
	Busy          Fault = "busy"           // 429
	Loading       Fault = "loading"        // 503
	BadGateway    Fault = "bad_gateway"    // 502 with a page and control characters
	Redirect      Fault = "redirect"       // 302 elsewhere
	NoContent     Fault = "no_content"     // 204

	// In the connection.
	Close      Fault = "close"       // closed before a byte
	Cut        Fault = "cut"         // closed in the middle of the body
	Garbage    Fault = "garbage"     // no HTTP
	BigHeaders Fault = "big_headers" // a megabyte of headers
	Silent     Fault = "silent"      // never answers
	Stall      Fault = "stall"       // starts, then says nothing
	Endless    Fault = "endless"     // never ends
	Comments   Fault = "comments"    // never ends, and says nothing
)

// canary stands in a response header; no error may repeat it.
const canary = "canary-secret-7f3a"

// expect is what a backend makes of a fault: a reason for each mode, or "" and
// the message.
type expect struct {
	whole, stream model.Reason
	want          chat.Message
	bodyWhole     string
	bodyStream    string
	status        int
}

func event(s string) string { return "data: " + s + "\n\n" }

func delta(s string) string { return event(`{"id":"r","choices":[{"index":0,"delta":{` + s + `}}]}`) }

func fragment(s string) string { return delta(`"tool_calls":[` + s + `]`) }

const (
	hello  = `"role":"assistant","content":"hello"`
	finish = "data: " + `{"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	done   = "data: [DONE]\n\n"
)

var (
	splitArguments = `{"unit": " <|tool_call|> \n", "lines":  3}`
	splitMessage   = chat.Message{Role: chat.Assistant, ToolCalls: []chat.ToolCall{{ID: "c1", Name: "t", Arguments: splitArguments}}}
	helloMessage   = chat.Message{Role: chat.Assistant, Text: "hello"}
)

// faults is data: the bodies, and what must come of them.
var faults = map[Fault]expect{
	ErrorEvent: {whole: model.ReasonServer, stream: model.ReasonServer,
		bodyWhole: `{"error":{"message":"slot failed","type":"server_error"}}`, bodyStream: delta(hello) + event(`{"error":{"message":"slot failed","type":"server_error"}}`)},
	ErrorLine: {whole: model.ReasonServer, stream: model.ReasonServer,
		bodyWhole: `{"error":"slot failed"}`, bodyStream: delta(hello) + "error: {\"code\":500,\"message\":\"slot failed\"}\n\n"},
	ContextEvent: {whole: model.ReasonContext, stream: model.ReasonContext, bodyWhole: contextBody, bodyStream: event(contextBody)},
	NoEnd:        {whole: model.ReasonMalformed, stream: model.ReasonTruncated, bodyWhole: ``, bodyStream: delta(hello)},
	HalfEvent:    {whole: model.ReasonMalformed, stream: model.ReasonTruncated, bodyWhole: `{"choices":[{"mess`, bodyStream: delta(hello) + `data: {"choices":[{"del`},
	Bare: {want: helloMessage, bodyWhole: `{"choices":[{"message":{"content":"hello"}}]}`,
		bodyStream: event(`{"choices":[{"delta":{"content":"hello"}}]}`) + done},
	SplitKey: {want: splitMessage, bodyWhole: whole(splitMessage), bodyStream: split(true)},
	NoIndex:  {want: splitMessage, bodyWhole: strings.Replace(whole(splitMessage), `"index":0,`, "", 1), bodyStream: split(false)},
	NotJSON:  {whole: model.ReasonMalformed, stream: model.ReasonMalformed, bodyWhole: "hello", bodyStream: event("hello") + done},
	NotUTF8: {whole: model.ReasonMalformed, stream: model.ReasonMalformed, bodyWhole: "{\"choices\":[{\"message\":{\"content\":\"\xff\"}}]}",
		bodyStream: delta("\"content\":\"\xff\"") + finish + done},
	Deep: {whole: model.ReasonTooLarge, stream: model.ReasonTooLarge, bodyWhole: deep, bodyStream: event(deep) + done},
	HugeArguments: {whole: model.ReasonTooLarge, stream: model.ReasonTooLarge,
		bodyWhole:  `{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"t","arguments":"` + huge + `"}}]}}]}`,
		bodyStream: fragment(`{"index":0,"id":"c","function":{"name":"t","arguments":"`+huge+`"}}`) + finish + done},
	TwoChoices: {whole: model.ReasonMalformed, stream: model.ReasonMalformed, bodyWhole: `{"choices":[{"message":{"content":"a"}},{"message":{"content":"b"}}]}`,
		bodyStream: event(`{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`) + finish + done},

	ContextStatus: {whole: model.ReasonContext, stream: model.ReasonContext, status: 400, bodyWhole: contextBody},
	Unauthorized:  {whole: model.ReasonRejected, stream: model.ReasonRejected, status: 401, bodyWhole: `{"error":{"message":"invalid key"}}`},
	NotFound:      {whole: model.ReasonRejected, stream: model.ReasonRejected, status: 404, bodyWhole: `{"detail":"no such model"}`},
	Busy:          {whole: model.ReasonRejected, stream: model.ReasonRejected, status: 429, bodyWhole: `{"error":{"message":"slow down"}}`},
	Loading:       {whole: model.ReasonServer, stream: model.ReasonServer, status: 503, bodyWhole: `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`},
	BadGateway:    {whole: model.ReasonServer, stream: model.ReasonServer, status: 502, bodyWhole: "<html>\x1b[2J\r\n" + strings.Repeat("gateway ", 1000)},
	Redirect:      {whole: model.ReasonRejected, stream: model.ReasonRejected, status: 302},
	NoContent:     {whole: model.ReasonMalformed, stream: model.ReasonMalformed, status: 204},

	Close:      {whole: model.ReasonUnavailable, stream: model.ReasonUnavailable},
	Cut:        {whole: model.ReasonTruncated, stream: model.ReasonTruncated},
	Garbage:    {whole: model.ReasonMalformed, stream: model.ReasonMalformed},
	BigHeaders: {whole: model.ReasonMalformed, stream: model.ReasonMalformed},
	Silent:     {whole: model.ReasonTimeout, stream: model.ReasonTimeout},
	Stall:      {whole: model.ReasonTimeout, stream: model.ReasonTimeout},
	Endless:    {whole: model.ReasonTooLarge, stream: model.ReasonTooLarge},
	Comments:   {whole: model.ReasonTooLarge, stream: model.ReasonTooLarge},
}

const contextBody = `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":5001,"n_ctx":4096}}`

var (
	deep = `{"choices":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`
	huge = strings.Repeat("a", 10_000_000)
)

// BodyFaults are those that lie in the bytes of the body alone.
func BodyFaults() []Fault {
	return []Fault{ErrorEvent, ErrorLine, ContextEvent, NoEnd, HalfEvent, Bare, SplitKey, NoIndex, NotJSON, NotUTF8, Deep, HugeArguments, TwoChoices}
}

// StatusFaults are those that lie in the status.
func StatusFaults() []Fault {
	return []Fault{ContextStatus, Unauthorized, NotFound, Busy, Loading, BadGateway, Redirect, NoContent}
}

// ConnectionFaults are those that lie in the connection.
func ConnectionFaults() []Fault {
	return []Fault{Close, Cut, Garbage, BigHeaders, Silent, Stall, Endless, Comments}
}

// Known reports whether f is in the list.
func (f Fault) Known() bool { _, ok := faults[f]; return ok }

// Body is the body of a body fault.
func (f Fault) Body(stream bool) string {
	if stream {
		return faults[f].bodyStream
	}
	return faults[f].bodyWhole
}

func whole(m chat.Message) string {
	b, err := completions.EncodeResponse(chat.Response{ID: "r", Model: "m", Message: m, Stop: chat.StopToolCalls,
		Usage: chat.Usage{InputTokens: 1, OutputTokens: 1}}, 1)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// split streams splitArguments three bytes at a time: the first cut is inside a key.
func split(index bool) string {
	i := ""
	if index {
		i = `"index":0,`
	}
	var b bytes.Buffer
	b.WriteString(fragment(`{` + i + `"id":"c1","type":"function","function":{"name":"t","arguments":""}}`))
	for s := splitArguments; s != ""; {
		n := min(3, len(s))
		fmt.Fprint(&b, fragment(fmt.Sprintf(`{%s"function":{"arguments":%q}}`, i, s[:n])))
		s = s[n:]
	}
	return b.String() + finish + done
}
