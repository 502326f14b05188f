//go:build linux

package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentos/internal/api/gatewire"
	"agentos/internal/api/runspec"
	"agentos/internal/host/fdframe"
)

// TestMain makes the test binary each part of a run. Parts know how to behave
// from the name of the file that they were started from.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "agentos-shim":
		os.Exit(fakeShim())
	case "agentos-loop":
		os.Exit(fakeLoop())
	case "agentos-tool":
		os.Exit(fakeTool(os.Args[1]))
	}
	os.Exit(m.Run())
}

// own is the file that this part was started from: its behaviour, and where it
// leaves marks.
func own() (path, behaviour string) {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		path = err.Error()
	}
	return path, filepath.Base(path)
}

func mark(what string) {
	path, _ := own()
	_ = os.WriteFile(path+"."+what, nil, 0o600)
}

func forever() {
	for {
		_ = syscall.Pause()
	}
}

// fakeLoop: "obey" ends with the code that the shim says.
func fakeLoop() int {
	mark("started")
	_, how := own()
	switch how {
	case "never-ready":
		_, _ = io.ReadAll(os.Stdin)
		return 0
	case "not-ready":
		fmt.Fprint(os.Stdin, "nearly")
		return 0
	case "dies":
		fmt.Fprint(os.Stderr, "cannot lock")
		return 1
	}
	control, err := fdframe.Inherited(os.Stdin)
	if err != nil {
		return 90
	}
	_, _ = io.WriteString(control, runspec.Ready)
	spec, _ := io.ReadAll(control)
	if len(spec) > 0 {
		mark("told")
	}
	var s runspec.Spec
	if json.Unmarshal(spec, &s) != nil || s.Goal == "" || s.Run == "" || s.Limits.Iterations != 8 {
		return 91
	}
	switch how {
	case "hang":
		forever()
	case "signal":
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		forever()
	}
	code := []byte{0}
	if _, err := io.ReadFull(os.NewFile(3, "mcp"), code); err != nil {
		return 21
	}
	fmt.Print("report of the loop")
	return int(code[0])
}

func fakeTool(name string) int {
	in, _ := io.ReadAll(os.Stdin)
	switch name {
	case "echo":
		fmt.Printf(`{"status":"ok","data":%s}`, in)
	case "fails":
		fmt.Println(`{"status":"error","error":"no such thing"}`)
	case "long":
		fmt.Printf(`{"status":"error","error":"x%s"}`, strings.Repeat("é", 600))
	case "hang":
		forever()
	}
	return 0
}

// front is a scripted shim.
type front struct {
	wire  *fdframe.Conn
	hello gatewire.Hello
	mcp   *os.File // to the loop
	out   *os.File // the loop's standard output
}

func (f *front) up(m gatewire.Up, blob string) {
	b, err := gatewire.EncodeUp(m, []byte(blob))
	if err == nil {
		err = f.wire.Write(b)
	}
	if err != nil {
		os.Exit(92)
	}
}

// down is the next message; the shim ends with the wire.
func (f *front) down() (gatewire.Down, []byte, []*os.File) {
	b, files, err := f.wire.Read()
	if err != nil {
		os.Exit(0)
	}
	m, blob, err := gatewire.DecodeDown(b)
	if err != nil {
		os.Exit(93)
	}
	return m, blob, files
}

// say shows a message to the test.
func (f *front) say(m gatewire.Down, blob []byte) {
	b, _ := json.Marshal(m)
	f.up(gatewire.Up{Text: &gatewire.Text{Text: string(b) + string(blob)}}, "")
}

// finish ends the loop and passes on what it reported.
func (f *front) finish(code byte, more ...string) {
	_, _ = f.mcp.Write([]byte{code})
	b, _ := io.ReadAll(f.out)
	f.up(gatewire.Up{LoopEnd: &gatewire.LoopEnd{Reason: "refused", Detail: "its words"}}, string(b)+strings.Join(more, ""))
}

func (f *front) tool(id uint64, name, args string) {
	f.up(gatewire.Up{Tool: &gatewire.Tool{ID: id, Name: name}}, args)
}

func (f *front) model(id uint64) {
	f.up(gatewire.Up{Model: &gatewire.Model{ID: id, MaxOutput: 10}}, `{"messages":[]}`)
}

func (f *front) done(id uint64, status string, in, out int64) {
	f.up(gatewire.Up{ModelDone: &gatewire.ModelDone{ID: id, Status: status, Reason: "server", Message: "said no", InputTokens: in, OutputTokens: out}}, `{"answer":1}`)
}

// answer waits for the answer to a proposal, shows it and ends the loop well.
func (f *front) answer() {
	m, blob, _ := f.down()
	f.say(m, blob)
	f.finish(0)
}

func fakeShim() int {
	_, how := own()
	how, arg, _ := strings.Cut(how, ",")
	c, err := fdframe.Inherited(os.Stdin)
	if err != nil {
		return 94
	}
	f := &front{wire: fdframe.New(c, gatewire.MaxMessage)}
	if !f.begin(how, c) {
		return 3
	}
	m, _, files := f.down()
	mark("told")
	if m.Hello == nil || len(files) < 3 {
		return 95
	}
	f.hello, f.mcp, f.out = *m.Hello, files[0], files[2]
	if len(files) == 4 {
		b, _ := io.ReadAll(files[3])
		f.up(gatewire.Up{Text: &gatewire.Text{Text: "script: " + string(b)}}, "")
	}
	if f.script(how, arg, c) {
		for { // until the wire ends
			f.down()
		}
	}
	return 4
}

// begin is what a shim does before it is told anything.
func (f *front) begin(how string, c *net.UnixConn) bool {
	switch how {
	case "dies-at-start":
		fmt.Fprint(os.Stderr, "cannot confine")
		return false
	case "silent":
		forever()
	case "garbage-first":
		_, _ = c.Write([]byte("\xff\xff\xff\xff\xffgarbage"))
	case "other-first":
		f.up(gatewire.Up{Cancel: &gatewire.Cancel{ID: 1}}, "")
	}
	f.up(gatewire.Up{Ready: &gatewire.Ready{LandlockABI: 7, NotEnforced: []string{"x\u00e9"}}}, "")
	return true
}

// script is what a shim does in its run; false ends it at once.
func (f *front) script(how, arg string, c *net.UnixConn) bool {
	switch how {
	case "obey":
		code := 0
		_, _ = fmt.Sscan(arg, &code)
		f.finish(byte(code))
	case "report":
		f.finish(0, arg)
	case "big-report":
		f.up(gatewire.Up{LoopEnd: &gatewire.LoopEnd{}}, strings.Repeat("x", runspec.MaxReport+1))
	case "two-ends":
		f.up(gatewire.Up{LoopEnd: &gatewire.LoopEnd{}}, "")
		f.up(gatewire.Up{LoopEnd: &gatewire.LoopEnd{}}, "")
	case "dies":
		fmt.Fprint(os.Stderr, "fell over")
		return false
	case "hangs-up":
		_ = c.Close()
		forever()
	case "garbage":
		_, _ = c.Write([]byte{0, 0, 0, 2, 0, 'h', 'i'})
	case "huge":
		_, _ = c.Write([]byte{0xff, 0xff, 0xff, 0xff, 0})
	case "ready-twice":
		f.up(gatewire.Up{Ready: &gatewire.Ready{}}, "")
	default:
		return f.calls(how, arg)
	}
	return true
}

func (f *front) calls(how, arg string) bool {
	switch how {
	case "tool":
		f.tool(1, arg, `{"k":"v"}`)
		f.answer()
	case "bad-args":
		f.tool(1, "echo", `{"k":1,"k":2}`)
		f.answer()
	case "big-args":
		f.tool(1, "echo", `{"k":"`+strings.Repeat("x", 5000)+`"}`)
		f.answer()
	case "accents":
		f.tool(1, "echo", `{"kk":"`+strings.Repeat("é", 1500)+`"}`)
		f.answer()
	case "long-name":
		f.tool(1, strings.Repeat("é", 100<<10), `{}`)
		f.answer()
	case "many":
		for i := range uint64(maxProposals + 1) {
			f.model(i)
		}
	case "same-id":
		f.tool(1, "hang", `{}`)
		f.tool(1, "echo", `{}`)
	case "full-house": // a place is free as soon as its answer is here
		for i := range uint64(maxProposals - 1) {
			f.model(1000 + i)
		}
		for range 2000 {
			f.tool(1, "forbidden", `{}`)
			for m, _, _ := f.down(); m.Answer == nil; m, _, _ = f.down() {
			}
		}
		f.finish(0)
	case "cancel":
		f.up(gatewire.Up{Cancel: &gatewire.Cancel{ID: 77}}, "") // names nothing
		f.tool(1, "hang", `{}`)
		f.up(gatewire.Up{Cancel: &gatewire.Cancel{ID: 1}}, "")
		f.answer()
	case "tool-open": // for tests that end the run
		f.tool(1, "hang", `{}`)
	default:
		return f.models(how, arg)
	}
	return true
}

func (f *front) models(how, arg string) bool {
	switch how {
	case "model":
		f.model(1)
		m, _, files := f.down()
		if m.Begin == nil {
			f.say(m, nil)
			f.finish(0)
			return true
		}
		if len(files) == 1 {
			b, _ := io.ReadAll(files[0])
			f.up(gatewire.Up{Text: &gatewire.Text{Text: "connection: " + string(bytes.TrimSpace(b))}}, "")
		}
		switch arg {
		case "dies":
			return false
		case "deaf": // never says how it ended
			f.down()
			f.answer()
			return true
		case "late": // says it when it is told to stop
			m, _, _ := f.down()
			f.say(m, nil)
			f.done(1, "ok", 3, 4)
		case "twice":
			f.done(1, "ok", 3, 4)
			f.done(1, "ok", 3, 4)
		case "huge":
			f.done(1, "ok", 1<<62, 1<<62)
		case "negative":
			f.done(1, "ok", -5, 4)
		case "denied":
			f.done(1, "denied", 3, 4)
		case "error":
			f.done(1, "error", 3, 4)
		default:
			f.done(1, "ok", 3, 4)
		}
		f.answer()
	case "done-for-nothing":
		f.done(9, "ok", 1, 1) // too late, or never: nothing to do
		f.finish(0)
	case "done-for-a-tool":
		f.tool(1, "hang", `{}`)
		f.done(1, "ok", 1, 1)
	case "done-before-begin":
		f.model(1)
		f.done(1, "ok", 1, 1)
	default:
		return false
	}
	return true
}
