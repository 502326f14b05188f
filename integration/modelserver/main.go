// Command modelserver serves scripted Chat Completions on a Unix socket, for
// end-to-end tests of the built binary. It is never shipped.
//
// State owned: its socket, removed at the end. Imports: model/modeltest.
// It prints "ready" once it listens, and ends on SIGINT or SIGTERM, or with exit
// code 3 and a message when the script was not used up (unless --partial).
// Script: docs/spec/replay.md. Tests: main_test.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"agentos/internal/execution/model/modeltest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "modelserver:", err)
		stop()
		os.Exit(code(err))
	}
}

var errUnused = errors.New("the script was not used up")

func code(err error) int {
	if errors.Is(err, errUnused) {
		return 3
	}
	return 1
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("modelserver", flag.ContinueOnError)
	path := f.String("socket", "", "path of the Unix socket to listen on")
	script := f.String("script", "", "path of the script")
	mode := f.Uint("mode", 0o600, "mode of the socket")
	partial := f.Bool("partial", false, "turns may be left at the end")
	if err := f.Parse(args); err != nil {
		return err
	}
	b, err := os.ReadFile(*script)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	s, err := modeltest.ParseScript(b)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", *path)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	if err := os.Chmod(*path, os.FileMode(*mode)&os.ModePerm); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	srv := modeltest.NewServer(s)
	fmt.Fprintln(out, "ready")
	if err := srv.Serve(ctx, l); err != nil {
		return err
	}
	if n := srv.Left(); n > 0 && !*partial {
		return fmt.Errorf("%w: %d turns left", errUnused, n)
	}
	return nil
}
