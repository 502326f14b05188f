package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of go test -json (cmd/test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

type skip struct{ pkg, test, reason string }

// result counts what ran.
type result struct {
	passed, failed int
	skips          []skip
	failedPkgs     int
}

// tally reads events to their end and prints the closing line of each package
// and the output of each test that failed. Errors: the stream is not go test's.
func tally(r io.Reader, w io.Writer) (result, error) {
	var t result
	kept := map[[2]string]*strings.Builder{}
	dec := json.NewDecoder(r)
	for {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return t, nil
		} else if err != nil {
			return t, fmt.Errorf("read go test output: %w", err)
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "output":
			if e.Test == "" && closing(e.Output) {
				fmt.Fprint(w, e.Output)
				continue
			}
			if kept[key] == nil {
				kept[key] = &strings.Builder{}
			}
			kept[key].WriteString(e.Output)
		case "pass", "skip", "fail":
			t.count(e, kept[key], w)
			delete(kept, key)
		}
	}
}

func (t *result) count(e event, out *strings.Builder, w io.Writer) {
	text := ""
	if out != nil {
		text = out.String()
	}
	switch {
	case e.Action == "fail":
		fmt.Fprint(w, text)
		if e.Test == "" {
			t.failedPkgs++
		} else {
			t.failed++
		}
	case e.Test == "": // a package that passed or holds no tests
	case e.Action == "pass":
		t.passed++
	default:
		t.skips = append(t.skips, skip{e.Package, e.Test, reasonOf(text)})
	}
}

// closing reports whether a line is the one that go test ends a package with.
func closing(line string) bool {
	for _, p := range []string{"ok  \t", "FAIL\t", "panic:", "?   \t"} {
		if strings.HasPrefix(line, p) {
			return p != "?   \t"
		}
	}
	return false
}

// reasonOf takes the message of a skip out of a test's output.
func reasonOf(out string) string {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, msg, ok := strings.Cut(line, ".go:"); ok {
			if _, msg, ok = strings.Cut(msg, ": "); ok {
				return msg
			}
		}
		return line
	}
	return "no reason given"
}

// summary prints the totals and what was left out, by reason.
func (t *result) summary(w io.Writer) {
	by := map[string][]string{}
	var reasons []string
	for _, s := range t.skips {
		if by[s.reason] == nil {
			reasons = append(reasons, s.reason)
		}
		by[s.reason] = append(by[s.reason], s.pkg+" "+s.test)
	}
	slices.Sort(reasons)
	for _, r := range reasons {
		fmt.Fprintf(w, "left out, %s:\n", r)
		for _, name := range by[r] {
			fmt.Fprintf(w, "  %s\n", name)
		}
	}
	fmt.Fprintf(w, "tests: %d passed, %d failed, %d left out\n", t.passed, t.failed, len(t.skips))
}

// verdict is nil when everything that had to run ran and passed.
func (t *result) verdict(ci bool, waitErr error) error {
	switch {
	case t.failed > 0 || t.failedPkgs > 0:
		return fmt.Errorf("%d tests in %d packages failed", t.failed, t.failedPkgs)
	case waitErr != nil:
		return fmt.Errorf("run go test: %w", waitErr)
	case t.passed == 0:
		return errors.New("no test ran")
	case ci && len(t.skips) > 0:
		return fmt.Errorf("%d tests were skipped, and CI has what every test needs", len(t.skips))
	}
	return nil
}
