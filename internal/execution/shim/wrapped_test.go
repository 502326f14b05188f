//go:build linux

package shim

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/host/fdframe"
)

// A wrapped run is handed on with its lifeline, and with nothing else.
func TestWrapped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hello gatewire.Hello
		files int
		want  bool
	}{
		"wrapped":                   {gatewire.Hello{Kind: gatewire.KindRun, Run: "r", Name: "n", TTY: true, Tools: []gatewire.ToolInfo{}}, 1, true},
		"wrapped, no lifeline":      {gatewire.Hello{Kind: gatewire.KindRun, Run: "r", Tools: []gatewire.ToolInfo{}}, 0, false},
		"wrapped, loop's files too": {gatewire.Hello{Kind: gatewire.KindRun, Run: "r", Tools: []gatewire.ToolInfo{}}, 3, false},
		"loop with a lifeline":      {gatewire.Hello{Run: "r", Backend: "rules", Tools: []gatewire.ToolInfo{}}, 1, false},
	} {
		gateConn, shimEnd := ends(t)
		gate := fdframe.New(gateConn.(*net.UnixConn), gatewire.MaxMessage)
		wire, err := fdframe.Inherited(shimEnd)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan gatewire.Hello, 1)
		done := make(chan error, 1)
		go func() {
			done <- Run(context.Background(), Deps{
				Wire: fdframe.New(wire, gatewire.MaxMessage),
				Wrapped: func(_ context.Context, h gatewire.Hello, lifeline *os.File) error {
					got <- h
					return lifeline.Close()
				},
			})
		}()
		if _, _, err := gate.Read(); err != nil { // ready
			t.Fatal(err)
		}
		b, err := gatewire.EncodeDown(gatewire.Down{Hello: &tt.hello}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var files []*os.File
		for range tt.files {
			_, f := ends(t)
			files = append(files, f)
			defer f.Close()
		}
		if err := gate.Write(b, files...); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if (err == nil) != tt.want || len(got) == 1 != tt.want {
				t.Errorf("%s: %v, handed on %d", name, err, len(got))
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the shim hangs", name)
		}
	}
}
