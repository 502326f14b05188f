// Command testrun runs go test over packages and tells the truth about skips:
// each is listed with its reason, and with CI=true any skip fails the run,
// since CI is root and has everything that integration/setup.sh installs.
//
// Usage: testrun [go test flags and packages]. Exit status 0 only if every test
// passed and, in CI, ran. Tests: tally_test.go.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	ci := os.Getenv("CI") == "true"
	if err := run(os.Args[1:], ci, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

func run(args []string, ci bool, out io.Writer) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("open pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	w := bufio.NewWriter(out)
	t, readErr := tally(pipe, flusher{w})
	waitErr := cmd.Wait()
	t.summary(w)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print results: %w", err)
	}
	if readErr != nil {
		return readErr
	}
	return t.verdict(ci, waitErr)
}

// flusher shows each line when it comes.
type flusher struct{ w *bufio.Writer }

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.w.Flush())
}
