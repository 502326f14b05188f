package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json"

	"agentos/internal/api/gatewire"
)

// Wire is a connection that carries messages with descriptors (host/fdframe).
type Wire interface {
	Write(body []byte, files ...*os.File) error
	Read() ([]byte, []*os.File, error)
	Close() error
}

// Serve is the shim's whole part in a wrapped run: it waits on the lifeline for
// the program's descriptors and relays until the gate's process closes the wire.
// Then, or when it fails, the lifeline is closed, which ends the sandbox.
func Serve(ctx context.Context, wire, lifeline Wire, tty bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer lifeline.Close()
	input := make(chan Input)
	wireErr := make(chan error, 1)
	go func() {
		wireErr <- readInput(ctx, wire, input)
		cancel()
		_ = lifeline.Close() // ends the wait for the descriptors
	}()
	err := serve(ctx, wire, lifeline, tty, input)
	if err == nil && ctx.Err() == nil {
		err = errors.New("relay ended before its wire")
	}
	cancel()
	_ = wire.Close()
	if werr := <-wireErr; err == nil {
		err = werr
	}
	return err
}

func serve(ctx context.Context, wire, lifeline Wire, tty bool, input <-chan Input) error {
	d := Deps{Input: input, Sink: sink{wire}}
	files, err := awaitFiles(lifeline, tty)
	switch {
	case ctx.Err() != nil:
		closeFiles(files)
		return nil
	case errors.Is(err, io.EOF):
		// No sandbox came to be; the launcher tells why.
		return absent(ctx, d)
	case err != nil:
		return err
	}
	if tty {
		d.TTY = files[0]
	} else {
		d.Stdin, d.Stdout, d.Stderr = files[0], files[1], files[2]
	}
	ended := make(chan struct{})
	d.Ended = ended
	go func() {
		defer close(ended)
		_, files, _ := lifeline.Read() // the sandbox says nothing more: any end is the end
		closeFiles(files)
	}()
	err = Run(ctx, d)
	_ = lifeline.Close()
	<-ended
	return err
}

// absent stands in for a program that never was.
func absent(ctx context.Context, d Deps) error {
	if err := d.Sink.Closed(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case in := <-d.Input:
			if n := len(in.Bytes); n > 0 {
				if err := d.Sink.Taken(n); err != nil {
					return err
				}
			}
		}
	}
}

// awaitFiles reads the one message of the lifeline.
func awaitFiles(lifeline Wire, tty bool) ([]*os.File, error) {
	b, files, err := lifeline.Read()
	if err != nil {
		return nil, fmt.Errorf("wait for the sandbox: %w", err)
	}
	var m struct {
		Ready bool `json:"ready"`
	}
	want := 3
	if tty {
		want = 1
	}
	err = json.Unmarshal(b, &m, json.RejectUnknownMembers(true))
	if err != nil || !m.Ready || len(files) != want {
		closeFiles(files)
		return nil, fmt.Errorf("wait for the sandbox: not a ready message with %d descriptors: %.40q with %d", want, b, len(files))
	}
	return files, nil
}

// readInput passes inputs on until the wire ends. An end between messages is how
// a run ends.
func readInput(ctx context.Context, wire Wire, input chan<- Input) error {
	for {
		b, files, err := wire.Read()
		if errors.Is(err, io.EOF) || err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		closeFiles(files)
		m, blob, err := gatewire.DecodeDown(b)
		if err != nil {
			return err
		}
		if m.RunInput == nil || len(files) > 0 {
			return errors.New("message out of place, or with descriptors that it may not have")
		}
		in := *m.RunInput
		select {
		case input <- Input{Bytes: blob, EOF: in.EOF, Rows: in.Rows, Cols: in.Cols, Signal: in.Signal}:
		case <-ctx.Done():
			return nil
		}
	}
}

// sink speaks the gate's wire.
type sink struct{ wire Wire }

func (s sink) send(m gatewire.Up, blob []byte) error {
	b, err := gatewire.EncodeUp(m, blob)
	if err != nil {
		return err
	}
	return s.wire.Write(b)
}

func (s sink) Output(stream uint8, b []byte) error {
	return s.send(gatewire.Up{RunOutput: &gatewire.RunOutput{Stream: stream}}, b)
}

func (s sink) Taken(n int) error {
	return s.send(gatewire.Up{RunTaken: &gatewire.RunTaken{Bytes: uint64(n)}}, nil)
}

func (s sink) Signal(name string) error {
	return s.send(gatewire.Up{RunSignal: &gatewire.RunSignal{Signal: name}}, nil)
}

func (s sink) Closed() error {
	return s.send(gatewire.Up{RunClosed: &gatewire.RunClosed{}}, nil)
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
