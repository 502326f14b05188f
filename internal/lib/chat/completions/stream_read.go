package completions

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"agentos/internal/lib/chat"
)

var doneMarker = []byte("[DONE]")

// ReadStream reads a streamed response to its end marker and returns the whole
// of it. sink, if not nil, gets each piece of text as it comes, in order, on
// this goroutine. At most chat.MaxResponseBytes are read; how long that may take
// is the reader's business (deadline, idle timeout). A stream is complete when a
// finish reason was followed by a clean end, or at [DONE]; anything else is
// Truncated. Errors are *Error and carry the usage seen so far.
//
// The event parser is our own 60 lines on bufio: the libraries drop a last
// event without a blank line behind it, which servers do send, and know no
// "error:" field, which llama-server uses.
func ReadStream(r io.Reader, requestBytes int, sink func(string)) (chat.Response, error) {
	a := newAssembly(requestBytes, sink)
	done, err := readEvents(r, a.event)
	if err == nil && !done && a.finish == "" {
		err = fail(Truncated, "", "the stream ended without a finish reason")
	}
	var resp chat.Response
	if err == nil {
		resp, err = a.response()
	}
	if err == nil {
		return resp, nil
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Kind: Read, Msg: "read stream failed", Err: err}
	}
	if a.reported != nil {
		u := a.usage()
		e.Usage = &u
	}
	return chat.Response{}, e
}

// event takes the data of one event; done is set by the end marker.
func (a *assembly) event(data []byte, isError bool) (done bool, err error) {
	if bytes.Equal(bytes.TrimSpace(data), doneMarker) {
		return true, nil
	}
	if isError {
		return false, DecodeError(data).asError()
	}
	r, err := decodeReply(data)
	if err != nil {
		return false, err
	}
	a.head(r)
	if len(r.Choices) > 1 {
		return false, fail(Malformed, "", "event has %d choices, want 1 at most", len(r.Choices))
	}
	for _, c := range r.Choices {
		if a.finish != "" && (len(c.Delta.ToolCalls) > 0) {
			return false, fail(Malformed, "", "tool call after the finish reason")
		}
		if err := a.text(c.Delta); err != nil {
			return false, err
		}
		for _, f := range c.Delta.ToolCalls {
			if err := a.fragment(f); err != nil {
				return false, err
			}
		}
		if c.FinishReason != "" {
			a.finish = c.FinishReason
		}
	}
	return false, nil
}

// readEvents splits a text/event-stream (WHATWG HTML section 9.2.6) and calls
// emit for each event that has data, until emit says done or the stream ends.
func readEvents(r io.Reader, emit func(data []byte, isError bool) (bool, error)) (done bool, err error) {
	// One byte more than the limit tells an exact fit from an excess.
	lim := &io.LimitedReader{R: r, N: chat.MaxResponseBytes + 1}
	in := bufio.NewReader(lim)
	var data []byte
	var isError bool
	dispatch := func() (bool, error) {
		if len(data) == 0 {
			isError = false
			return false, nil
		}
		d, e := data[:len(data)-1], isError // without the last line's newline
		data, isError = nil, false
		return emit(d, e)
	}
	for first := true; ; first = false {
		line, rerr := in.ReadBytes('\n')
		if lim.N <= 0 {
			return false, fail(TooLarge, "", "the stream exceeds %d bytes", chat.MaxResponseBytes)
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			data = append(append(data, value...), '\n')
		case "error": // llama-server's own
			data, isError = append(append(data, value...), '\n'), true
		case "event":
			isError = isError || string(value) == "error"
		}
		if len(line) == 0 || errors.Is(rerr, io.EOF) {
			done, err := dispatch()
			if rerr != nil && KindOf(err) == Malformed {
				return false, fail(Truncated, "", "the stream ended in the middle of an event")
			}
			if done || err != nil {
				return done, err
			}
		}
		switch {
		case rerr == nil:
		case errors.Is(rerr, io.ErrUnexpectedEOF):
			return false, fail(Truncated, "", "the connection ended in the middle of the stream")
		case errors.Is(rerr, io.EOF):
			return false, nil
		default:
			return false, rerr
		}
	}
}
