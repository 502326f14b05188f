package completions

import (
	"fmt"
	"io"

	"agentos/internal/lib/chat"
)

// StreamWriter writes one response as a text/event-stream. Not safe for
// concurrent use. If the writer has a Flush method it is called after each event.
type StreamWriter struct {
	w       io.Writer
	head    wireResponse
	usage   bool
	sent    int // bytes of text
	started bool
}

// NewStreamWriter starts nothing. created is in Unix seconds; includeUsage adds
// the usage event that stream_options.include_usage asks for.
func NewStreamWriter(w io.Writer, id, model string, created int64, includeUsage bool) *StreamWriter {
	return &StreamWriter{w: w, usage: includeUsage, head: wireResponse{
		ID: id, Object: "chat.completion.chunk", Created: created, Model: model,
	}}
}

// Text sends a piece of the answer.
func (s *StreamWriter) Text(delta string) error {
	s.sent += len(delta)
	return s.delta(wireDelta{Content: delta}, nil)
}

// Finish sends what of r was not sent yet, its tool calls, its stop reason, the
// usage if asked for, and the end marker.
func (s *StreamWriter) Finish(r chat.Response) error {
	if len(r.Message.Text) > s.sent {
		if err := s.Text(r.Message.Text[s.sent:]); err != nil {
			return err
		}
	}
	for i, c := range r.Message.ToolCalls {
		if err := s.delta(wireDelta{ToolCalls: []wireCall{encodeCall(c, &i)}}, nil); err != nil {
			return err
		}
	}
	f := finishReason(r.Stop)
	if err := s.delta(wireDelta{}, &f); err != nil {
		return err
	}
	if s.usage {
		u := s.head
		u.Choices, u.Usage = []wireChoice{}, encodeUsage(r.Usage)
		if err := s.write(u); err != nil {
			return err
		}
	}
	return s.event(doneMarker)
}

// Error sends an error event, after which the stream just ends.
func (s *StreamWriter) Error(e ServerError) error { return s.event(EncodeError(e)) }

func (s *StreamWriter) delta(d wireDelta, finish *string) error {
	if !s.started {
		d.Role, s.started = "assistant", true
	}
	c := s.head
	c.Choices = []wireChoice{{Delta: &d, FinishReason: finish}}
	return s.write(c)
}

func (s *StreamWriter) write(v wireResponse) error {
	b, err := marshal(v, chat.MaxResponseBytes)
	if err != nil {
		return err
	}
	return s.event(b)
}

func (s *StreamWriter) event(data []byte) error {
	if _, err := fmt.Fprintf(s.w, "data: %s\n\n", data); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if f, ok := s.w.(interface{ Flush() }); ok {
		f.Flush()
	}
	return nil
}
