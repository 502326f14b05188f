// Command loopmodel serves scripted Chat Completions on loopback while a command
// runs, and ends with the command's exit code. It is started inside a sandbox,
// which has no network but its own loopback. It is never shipped.
//
// Usage: loopmodel -addr 127.0.0.1:PORT -script FILE -- COMMAND [ARG...]
// Exit code 3: the command ended well and turns of the script are left.
//
// State owned: its listener. Imports: model/modeltest. Script: docs/spec/replay.md.
// Tests: integration/agents.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"

	"agentos/internal/execution/model/modeltest"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "loopmodel:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	f := flag.NewFlagSet("loopmodel", flag.ContinueOnError)
	addr := f.String("addr", "", "address to listen on")
	script := f.String("script", "", "path of the script")
	if err := f.Parse(args); err != nil {
		return 1, err
	}
	if f.NArg() == 0 {
		return 1, errors.New("no command")
	}
	b, err := os.ReadFile(*script)
	if err != nil {
		return 1, fmt.Errorf("read script: %w", err)
	}
	s, err := modeltest.ParseScript(b)
	if err != nil {
		return 1, err
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return 1, fmt.Errorf("listen: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	srv, served := modeltest.NewServer(s), make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()

	c := exec.Command(f.Arg(0), f.Args()[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = c.Run()
	cancel()
	if e := <-served; e != nil {
		return 1, e
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("start command: %w", err)
	}
	if n := srv.Left(); n > 0 {
		return 3, fmt.Errorf("%d turns of the script are left", n)
	}
	return 0, nil
}
