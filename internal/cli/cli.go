// Package cli is the command line of AgentOS: the root command, how output
// looks, how errors end the process. The nouns live in sub-packages; cmd/agentos
// puts them together.
//
// State owned: the global flags of one invocation (Env). Imports: client,
// lib/{fault,setting,termsafe}, cobra. Imported by: cli/<noun>, cmd/agentos.
// Invariants: whatever came from an agent, a model or the system passes termsafe
// before it is printed; results go to standard output, errors to standard error
// with a next step; colours and cursor movement only on a terminal and never
// under NO_COLOR or --json; the client stays thin: no database, no policy engine,
// no agent protocol is linked (cmd/agentos has the test).
// Tests: cli_test.go; scripts in cmd/agentos/testdata.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"agentos/internal/client"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
	"agentos/internal/lib/termsafe"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Env is what a command may touch. Fill the first block; Root sets the second
// from the global flags before a command runs.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	OutTerm  bool // standard output is a terminal
	ErrTerm  bool
	Columns  int // of the terminal; 0: unknown
	Getenv   func(string) string
	Connect  client.Connector
	Share    client.Connector // for runs that outlive their client; nil: Connect
	Version  string

	JSON  bool
	Sets  []setting.Set
	Style Style // of standard output
	Width int   // 0: don't wrap or cut (not a terminal)

	noColor bool
}

// Live reports whether progress may move the cursor.
func (e *Env) Live() bool { return e.OutTerm && !e.JSON && e.Getenv("TERM") != "dumb" }

// Printf writes to standard output; Sink remembers when that failed.
func (e *Env) Printf(format string, args ...any) { fmt.Fprintf(e.Out, format, args...) }

// With runs f in a session and reports why it failed: an error of a call, or of
// agentosd itself, which ends before With returns.
func (e *Env) With(ctx context.Context, f func(s *client.Session) error) error {
	return e.with(ctx, e.Connect, f)
}

// WithShared is With by the agentosd that runs of this state share.
func (e *Env) WithShared(ctx context.Context, f func(s *client.Session) error) error {
	c := e.Share
	if c == nil {
		c = e.Connect
	}
	return e.with(ctx, c, f)
}

func (e *Env) with(ctx context.Context, c client.Connector, f func(s *client.Session) error) error {
	s, err := c.Connect(ctx, e.Sets)
	if err != nil {
		return err
	}
	err = s.Explain(f(s))
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	return err
}

// PrintJSON writes one message as indented JSON, in the order of the contract's
// fields, with its zero values.
func (e *Env) PrintJSON(m proto.Message) error { return e.writeJSON(m, true) }

// PrintJSONLine is PrintJSON on one line.
func (e *Env) PrintJSONLine(m proto.Message) error { return e.writeJSON(m, false) }

func (e *Env) writeJSON(m proto.Message, indent bool) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "encode answer")
	}
	// protojson varies its spaces on purpose; these two don't.
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return fault.Wrap(err, fault.Internal, "", "encode answer")
	}
	if indent {
		var in bytes.Buffer
		if err := json.Indent(&in, b.Bytes(), "", "  "); err != nil {
			return fault.Wrap(err, fault.Internal, "", "encode answer")
		}
		b = in
	}
	b.WriteByte('\n')
	if _, err := e.Out.Write(termsafe.JSON(b.Bytes())); err != nil {
		return lost(err)
	}
	return nil
}

func lost(err error) error {
	return fault.Wrap(err, fault.Unavailable, "check the disk or the reader of the output", "write answer")
}

// Sink is a standard output that remembers its first error, so that a full disk
// doesn't look like an answer. Not for concurrent use.
type Sink struct {
	W   io.Writer
	err error
}

// Write implements io.Writer.
func (s *Sink) Write(p []byte) (int, error) {
	n, err := s.W.Write(p)
	if err != nil && s.err == nil {
		s.err = lost(err)
	}
	return n, err
}

// Err is the first error, a fault, or nil.
func (s *Sink) Err() error { return s.err }
