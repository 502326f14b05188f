// Command bench measures this version against bare operations of the same
// machine in the same run and writes the table of docs/bench.md. The figures
// are ratios first; none of them is a timed test.
//
// Usage: bench -bin DIR [-o FILE] [-only SECTION]. It writes below a scratch
// directory, which it removes. Exit status 1 when a section failed; targets that
// are missed are shown, not fatal. Tests: main_test.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
)

// Row is one measurement beside its base.
type Row struct {
	Name     string
	Value    float64 // in Unit
	Unit     string
	Base     float64 // the bare operation, in Unit; 0: there is none
	BaseName string
	Ratio    float64 // 0: Value / Base
	Target   string  // what is aimed at, such as "ratio ≤ 1.4"; empty: nothing
}

// Section is one table.
type Section struct {
	Title, Note string
	Rows        []Row
}

// section measures something in a scratch directory of its own on disk.
type section struct {
	name string
	run  func(ctx context.Context, scratch string) (Section, error)
}

func main() {
	bin := flag.String("bin", "bin", "directory of the built binaries")
	out := flag.String("o", "", "file to write; standard output when empty")
	only := flag.String("only", "", "the one section to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, sections(*bin), *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// sections is the list of what is measured.
func sections(bin string) []section {
	return []section{
		{"start", start{bin: bin, runs: 21}.section},
		{"sandbox", wrap{bin: bin, runs: 15}.section},
		{"policy", policySection},
		{"audit", auditSection},
	}
}

func run(ctx context.Context, all []section, only, out string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\nWritten by `make bench`. Medians of runs that alternate with the bare operation beside them, so read the ratio\nfirst: the machine is small and its figures move together.\n\n%s\n", machine())
	var errs []error
	ran := 0
	for _, s := range all {
		if only != "" && only != s.name {
			continue
		}
		ran++
		fmt.Fprintln(os.Stderr, "bench:", s.name)
		if err := one(ctx, s, &b); err != nil {
			errs = append(errs, fmt.Errorf("measure %q: %w", s.name, err))
		}
	}
	if ran == 0 {
		return fmt.Errorf("find section %q", only)
	}
	if err := errors.Join(errs...); err != nil {
		return err // no half table over a good one
	}
	if out == "" {
		_, err := io.WriteString(os.Stdout, b.String())
		return err
	}
	return os.WriteFile(out, []byte(b.String()), 0o644)
}

func one(ctx context.Context, s section, w io.Writer) error {
	dir, err := os.MkdirTemp("", "agentos-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	got, err := s.run(ctx, dir)
	if err != nil {
		return err
	}
	table(w, got)
	return nil
}

// table writes a section as a markdown table whose source is readable too.
func table(w io.Writer, s Section) {
	fmt.Fprintf(w, "\n## %s\n\n", s.Title)
	if s.Note != "" {
		fmt.Fprintf(w, "%s\n\n", strings.TrimSpace(s.Note))
	}
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tw, "| what\t| measured\t| against\t| ratio\t| target\t|")
	fmt.Fprintln(tw, "| ---\t| ---\t| ---\t| ---\t| ---\t|")
	for _, r := range s.Rows {
		base, ratio, target := "–", "–", "–"
		if r.Base > 0 {
			base = fmt.Sprintf("%s %s (%s)", figure(r.Base), r.Unit, r.BaseName)
			if r.Ratio == 0 {
				r.Ratio = r.Value / r.Base
			}
			ratio = figure(r.Ratio)
		}
		if r.Target != "" {
			target = r.Target
		}
		fmt.Fprintf(tw, "| %s\t| %s %s\t| %s\t| %s\t| %s\t|\n", r.Name, figure(r.Value), r.Unit, base, ratio, target)
	}
	tw.Flush()
}

// figure gives three significant digits and groups thousands.
func figure(v float64) string {
	switch {
	case v >= 1000:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
