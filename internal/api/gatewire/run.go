package gatewire

import "fmt"

// The messages of a run of KindRun. The lifeline that comes with Hello is a
// connected Unix socket to the sandbox's first process. Over it the shim gets one
// frame {"ready":true} with the terminal's master descriptor, or with the far ends
// of stdin, stdout and stderr in this order. It closes with the sandbox; closing
// it ends the sandbox.

// Limits of a run's messages in bytes.
const (
	MaxRunInput  = 64 << 10  // blob of a RunInput
	MaxRunOutput = 64 << 10  // blob of a RunOutput
	RunWindow    = 256 << 10 // input that may be sent and not yet taken
)

// RunInput is one input for the program: bytes (the blob), or the end of input,
// or a window size, or a signal; exactly one of them.
type RunInput struct {
	EOF    bool   `json:"eof,omitempty"`
	Rows   uint16 `json:"rows,omitempty"` // with Cols; both above 0
	Cols   uint16 `json:"cols,omitempty"`
	Signal string `json:"signal,omitempty"` // one of Signals
}

// Signals are the signals that a person may send to a program.
func Signals() []string {
	return []string{"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "TSTP", "CONT"}
}

// RunOutput is what the program wrote, never empty. With a terminal there is only
// stream 1.
type RunOutput struct {
	Stream uint8 `json:"stream"` // 1 standard output, 2 standard error
}

// RunTaken says that the program's side took n more bytes of input, or that the
// program reads no more and they were dropped.
type RunTaken struct {
	Bytes uint64 `json:"bytes"`
}

// RunSignal hands a signal back that no terminal could turn into a character:
// the launcher has to deliver it.
type RunSignal struct {
	Signal string `json:"signal"`
}

// RunClosed says that all output has been sent: the program's side is closed.
type RunClosed struct{}

func (m Up) checkRun(blob int) error {
	switch {
	case m.RunOutput != nil && (m.RunOutput.Stream < 1 || m.RunOutput.Stream > 2 || blob == 0 || blob > MaxRunOutput):
		return fmt.Errorf("%w: run output of %d bytes on stream %d", ErrFormat, blob, m.RunOutput.Stream)
	case m.RunTaken != nil && (m.RunTaken.Bytes == 0 || blob > 0):
		return fmt.Errorf("%w: nothing was taken", ErrFormat)
	case m.RunSignal != nil && (!isSignal(m.RunSignal.Signal) || blob > 0):
		return fmt.Errorf("%w: signal %.20q", ErrFormat, m.RunSignal.Signal)
	case m.RunClosed != nil && blob > 0:
		return fmt.Errorf("%w: end of output with %d bytes", ErrFormat, blob)
	}
	return nil
}

func (m Down) checkRun(blob int) error {
	if h := m.Hello; h != nil {
		switch {
		case h.Kind == "" && (h.TTY || h.Name != ""):
			return fmt.Errorf("%w: a terminal or name for a loop", ErrFormat)
		case h.Kind == KindRun && (h.Backend != "" || h.Model != "" || len(h.Tools) > 0):
			return fmt.Errorf("%w: a backend or tools for a wrapped program", ErrFormat)
		case h.Kind != "" && h.Kind != KindRun:
			return fmt.Errorf("%w: run of kind %.20q", ErrFormat, h.Kind)
		}
	}
	in := m.RunInput
	if in == nil {
		return nil
	}
	size := in.Rows > 0 && in.Cols > 0
	if count(blob > 0, in.EOF, size, in.Signal != "") != 1 || blob > MaxRunInput ||
		!size && (in.Rows > 0 || in.Cols > 0) || in.Signal != "" && !isSignal(in.Signal) {
		return fmt.Errorf("%w: run input must be one of bytes, end, size, signal", ErrFormat)
	}
	return nil
}

func isSignal(name string) bool {
	for _, s := range Signals() {
		if s == name {
			return true
		}
	}
	return false
}
