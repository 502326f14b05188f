package gatewire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func blobbed(header string, n int) []byte { return append(raw(header), make([]byte, n)...) }

func TestRunMessages(t *testing.T) {
	t.Parallel()
	for _, m := range []Up{
		{RunOutput: &RunOutput{Stream: 2}}, {RunTaken: &RunTaken{Bytes: 7}}, {RunSignal: &RunSignal{Signal: "TERM"}}, {RunClosed: &RunClosed{}},
	} {
		var blob []byte
		if m.RunOutput != nil {
			blob = []byte("\x00\xff")
		}
		b, err := EncodeUp(m, blob)
		if err != nil {
			t.Fatal(err)
		}
		if got, gotBlob, err := DecodeUp(b); err != nil || cmp.Diff(m, got) != "" || !bytes.Equal(blob, gotBlob) {
			t.Errorf("%v %q %v", got, gotBlob, err)
		}
	}
	for _, m := range []Down{
		{Hello: &Hello{Kind: KindRun, Run: "r", Name: "n", TTY: true, Tools: []ToolInfo{}}}, {RunInput: &RunInput{EOF: true}},
		{RunInput: &RunInput{Rows: 24, Cols: 80}}, {RunInput: &RunInput{Signal: "TSTP"}},
	} {
		b, err := EncodeDown(m, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := DecodeDown(b); err != nil || cmp.Diff(m, got) != "" {
			t.Errorf("%v %v", got, err)
		}
	}
}

func TestRunRefused(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"stream 0":          blobbed(`{"run_output":{"stream":0}}`, 1),
		"stream 3":          blobbed(`{"run_output":{"stream":3}}`, 1),
		"empty output":      raw(`{"run_output":{"stream":1}}`),
		"much output":       blobbed(`{"run_output":{"stream":1}}`, MaxRunOutput+1),
		"nothing taken":     raw(`{"run_taken":{"bytes":0}}`),
		"taken and blob":    blobbed(`{"run_taken":{"bytes":1}}`, 1),
		"signal KILL":       raw(`{"run_signal":{"signal":"KILL"}}`),
		"signal number":     raw(`{"run_signal":{"signal":"9"}}`),
		"closed with bytes": blobbed(`{"run_closed":{}}`, 1),
	} {
		if m, _, err := DecodeUp(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v %v", name, m, err)
		}
	}
	if b, err := EncodeDown(Down{RunInput: &RunInput{}}, []byte("x")); err != nil {
		t.Error(err)
	} else if m, blob, err := DecodeDown(b); err != nil || m.RunInput == nil || string(blob) != "x" {
		t.Error(m, err)
	}
	for name, b := range map[string][]byte{
		"no input":           raw(`{"run_input":{}}`),
		"bytes and end":      blobbed(`{"run_input":{"eof":true}}`, 1),
		"end and size":       raw(`{"run_input":{"eof":true,"rows":1,"cols":1}}`),
		"half a size":        raw(`{"run_input":{"rows":1}}`),
		"half a size, bytes": blobbed(`{"run_input":{"cols":1}}`, 1),
		"signal STOP":        raw(`{"run_input":{"signal":"STOP"}}`),
		"much input":         blobbed(`{"run_input":{}}`, MaxRunInput+1),
		"kind":               raw(`{"hello":{"kind":"root","run":"r","tools":[],"backend":"","model":"","max_output_tokens":0,"timeout_ms":0}}`),
		"run with backend":   raw(`{"hello":{"kind":"run","run":"r","tools":[],"backend":"socket","model":"","max_output_tokens":0,"timeout_ms":0}}`),
		"loop with terminal": raw(`{"hello":{"run":"r","tty":true,"tools":[],"backend":"rules","model":"","max_output_tokens":0,"timeout_ms":0}}`),
	} {
		if m, _, err := DecodeDown(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v %v", name, m, err)
		}
	}
}

// What decodes keeps the promises that both ends rely on.
func FuzzDecodeRun(f *testing.F) {
	for _, h := range []string{`{"run_input":{"eof":true}}`, `{"run_input":{"rows":1,"cols":2}}`, `{"run_output":{"stream":1}}`, `{"run_signal":{"signal":"INT"}}`} {
		f.Add([]byte(h), []byte("x"))
		f.Add([]byte(h), []byte{})
	}
	f.Fuzz(func(t *testing.T, header, blob []byte) {
		if len(header) > 1<<16 {
			return
		}
		b := append(append(binary.BigEndian.AppendUint32(nil, uint32(len(header))), header...), blob...)
		if m, got, err := DecodeUp(b); err == nil && m.RunOutput != nil && (len(got) == 0 || m.RunOutput.Stream-1 > 1) {
			t.Errorf("%+v with %d bytes", m.RunOutput, len(got))
		}
		m, got, err := DecodeDown(b)
		if err != nil || m.RunInput == nil {
			return
		}
		in := *m.RunInput
		if count(len(got) > 0, in.EOF, in.Rows > 0, in.Signal != "") != 1 || (in.Rows > 0) != (in.Cols > 0) || strings.ContainsAny(in.Signal, "0123456789KO ") && !isSignal(in.Signal) {
			t.Errorf("%+v with %d bytes", in, len(got))
		}
	})
}
