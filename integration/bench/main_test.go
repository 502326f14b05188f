package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	table(&b, Section{Title: "T", Note: "\nNote.", Rows: []Row{
		{Name: "a", Value: 12345.6, Unit: "records/s", Base: 24691.2, BaseName: "bare", Target: "ratio ≥ 0.5"},
		{Name: "longer", Value: 0.5, Unit: "ms"},
		{Name: "own", Value: 2, Unit: "ms", Base: 1, BaseName: "b", Ratio: 7},
	}})
	want := `
## T

Note.

| what   | measured         | against                 | ratio | target      |
| ---    | ---              | ---                     | ---   | ---         |
| a      | 12,346 records/s | 24,691 records/s (bare) | 0.500 | ratio ≥ 0.5 |
| longer | 0.500 ms         | –                       | –     | –           |
| own    | 2.00 ms          | 1.00 ms (b)             | 7.00  | –           |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestRunKeepsTheOldTable shows that a failed section leaves the file alone.
func TestRunKeepsTheOldTable(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "bench.md")
	ok := section{"ok", func(context.Context, string) (Section, error) { return Section{Title: "Fine"}, nil }}
	bad := section{"bad", func(context.Context, string) (Section, error) { return Section{}, errors.New("broken") }}
	if err := run(t.Context(), []section{ok}, "", out); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(before), "## Fine") || !strings.Contains(string(before), "Machine: ") {
		t.Errorf("table lacks its section or its machine:\n%s", before)
	}
	if err := run(t.Context(), []section{ok, bad}, "", out); err == nil || !strings.Contains(err.Error(), `measure "bad": broken`) {
		t.Errorf("run with a broken section = %v", err)
	}
	if after, _ := os.ReadFile(out); string(after) != string(before) {
		t.Error("a failed run changed the table")
	}
	if err := run(t.Context(), []section{ok}, "none", out); err == nil {
		t.Error("an unknown section was accepted")
	}
}

func TestInterleave(t *testing.T) {
	t.Parallel()
	var order []int
	op := func(i int, ms ...int) func() (time.Duration, error) {
		n := -1
		return func() (time.Duration, error) {
			order = append(order, i)
			n++
			return time.Duration(ms[n]) * time.Millisecond, nil
		}
	}
	// The first value is the warm-up and must not count.
	got, err := interleave(3, op(0, 900, 3, 1, 2), op(1, 900, 10, 30, 20))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{2, 20}, got); diff != "" {
		t.Errorf("medians (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{0, 1, 0, 1, 0, 1, 0, 1}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
