package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts find two programs side by side: this command, and a fake agentosd
// with canned answers (fake_test.go).
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"agentos":  func() { os.Exit(command()) },
		"agentosd": func() { os.Exit(fakeDaemon()) },
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// waitfor FILE REGEXP polls until a line of the file matches.
			"waitfor": waitFor,
			// exits CODE PROGRAM ARGS...: like exec, with an exact exit code.
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
				}
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if x, ok := err.(*exec.ExitError); ok {
					got = strings.TrimPrefix(x.String(), "exit status ")
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if got != args[0] {
					ts.Fatalf("exit code %s, want %s", got, args[0])
				}
			},
		},
	})
}

// The client links no database, policy engine or agent protocol: that is what
// keeps its start short, and what keeps those out of the user's process.
func TestThinClient(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := string(out)
	if !strings.Contains(deps, "agentos/internal/client") {
		t.Fatal("the list is not about this command")
	}
	for _, p := range strings.Fields(deps) {
		for _, bad := range []string{"sqlite", "cedar", "modelcontextprotocol", "go-yaml", "agentos/internal/trusted", "agentos/internal/control",
			"agentos/internal/execution", "agentos/internal/host", "agentos/internal/reasoning", "html/template"} {
			if strings.Contains(p, bad) {
				t.Errorf("agentos links %s", p)
			}
		}
	}
}

// waitFor gives the program in the background ten seconds to say something.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfor FILE REGEXP")
	}
	re := regexp.MustCompile("(?m)" + args[1])
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for range 1000 {
		if data, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && re.Match(data) {
			return
		}
		<-poll.C
	}
	ts.Fatalf("%s never matched %s", args[0], args[1])
}
