package toolproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/internal/execution/tool"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/fault"
)

// TestMain makes the test binary a tool: its name says how it behaves.
func TestMain(m *testing.M) {
	if os.Args[0] == "agentos-tool" {
		os.Exit(behave(os.Args[1]))
	}
	os.Exit(m.Run())
}

func behave(name string) int {
	in, _ := io.ReadAll(os.Stdin)
	switch name {
	case "echo":
		fmt.Printf(`{"status":"ok","data":{"args":%s,"env":%d}}`+"\n", in, len(os.Environ()))
	case "unavailable":
		fmt.Println(`{"status":"unavailable","error":"no systemd","next":"boot it"}`)
	case "garbage":
		fmt.Println("\x00\xffnot json")
	case "two":
		fmt.Println(`{"status":"ok"}{"status":"ok"}`)
	case "made-up":
		fmt.Println(`{"status":"admitted"}`)
	case "huge":
		fmt.Println(`{"status":"ok","data":"` + strings.Repeat("x", 5000) + `"}`)
	case "endless":
		for {
			fmt.Print(strings.Repeat("x", 1<<16))
		}
	case "hang":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGUSR1) // the runtime calls plain waiting a deadlock
		<-c
	case "fails":
		fmt.Fprintln(os.Stderr, "broken inside")
		return 3
	case "silent":
	}
	return 0
}

func runTool(t *testing.T, ctx context.Context, name string, verify Verify) (Output, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := spawn.OpenBinary(self)
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	if verify == nil {
		verify = func(int) error { return nil }
	}
	return Run(ctx, bin, tool.Descriptor{Name: name, MaxResult: 4096, Deadline: time.Second}, []byte(`{"k":"v"}`), Identity{}, verify)
}

func TestRun(t *testing.T) {
	for name, want := range map[string]fault.Kind{
		"echo": "", "unavailable": "", "garbage": fault.Internal, "two": fault.Internal, "made-up": fault.Internal,
		"huge": fault.Limit, "endless": fault.Limit, "hang": fault.Timeout, "fails": fault.Internal, "silent": fault.Internal,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			out, err := runTool(t, ctx, name, nil)
			if fault.KindOf(err) != want {
				t.Fatalf("%v, want %q", err, want)
			}
			switch name {
			case "echo":
				if string(out.Doc) != `{"data":{"args":{"k":"v"},"env":0},"status":"ok"}` {
					t.Errorf("%s", out.Doc)
				}
			case "fails":
				if !strings.Contains(err.Error(), "broken inside") {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// TestUnverifiedToolGetsNoArguments: a process whose identity does not check
// out ends before it is told anything.
func TestUnverifiedToolGetsNoArguments(t *testing.T) {
	wrong := errors.New("runs as somebody else")
	if _, err := runTool(t, t.Context(), "echo", func(int) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := runTool(t, ctx, "hang", func(int) error { cancel(); return nil }); fault.KindOf(err) != fault.Cancelled {
		t.Errorf("%v", err)
	}
}
