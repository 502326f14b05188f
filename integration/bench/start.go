package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// start measures how long the binaries take to begin and end.
type start struct {
	bin  string
	runs int // of each short command; whole runs are made a third as often
}

const goal = "Inspect this Linux system"

func (s start) section(ctx context.Context, scratch string) (Section, error) {
	out := Section{Title: "Start and whole runs", Note: `
fork, exec and exit, as a shell sees it. The trivial program is an empty static Go main. A whole run is
` + "`agentos agent once \"" + goal + "\"`" + ` with the rules backend: daemon, shim and loop started, tools run, every record durable,
log verified. Memory is the largest resident set of one process, by wait4.`}
	empty, err := emptyGo(ctx, scratch)
	if err != nil {
		return out, err
	}
	agentos, err := filepath.Abs(filepath.Join(s.bin, "agentos"))
	if err != nil {
		return out, err
	}
	op := func(name string, args ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			d, _, err := timed(ctx, nil, name, args...)
			return d, err
		}
	}
	ms, err := interleave(s.runs, op("/bin/true"), op(empty), op(agentos, "--version"))
	if err != nil {
		return out, err
	}
	out.Rows = append(out.Rows,
		Row{Name: "trivial static Go program", Value: ms[1], Unit: "ms", Base: ms[0], BaseName: "/bin/true"},
		Row{Name: "agentos --version", Value: ms[2], Unit: "ms", Base: ms[1], BaseName: "trivial static Go program", Target: "≤ 15 ms"})
	rows, err := s.wholeRuns(ctx, agentos, empty, scratch)
	if err != nil {
		return out, err
	}
	out.Rows = append(out.Rows, rows...)
	mem, err := memoryRows(ctx, agentos, empty, scratch)
	out.Rows = append(out.Rows, mem...)
	return out, err
}

// wholeRuns times a run on new state and on state that is there.
func (s start) wholeRuns(ctx context.Context, agentos, empty, scratch string) ([]Row, error) {
	n := 0
	once := func(dir func() string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			d, _, err := timed(ctx, state(dir()), agentos, "agent", "once", goal)
			return d, err
		}
	}
	ms, err := interleave(max(3, s.runs/3),
		once(func() string { n++; return filepath.Join(scratch, "new", strconv.Itoa(n)) }),
		once(func() string { return filepath.Join(scratch, "kept") }),
		func() (time.Duration, error) { d, _, err := timed(ctx, nil, empty); return d, err })
	if err != nil {
		return nil, err
	}
	return []Row{
		{Name: "agent once, new state", Value: ms[0], Unit: "ms", Base: ms[2], BaseName: "trivial static Go program"},
		{Name: "agent once, state kept", Value: ms[1], Unit: "ms", Base: ms[2], BaseName: "trivial static Go program"},
	}, nil
}

// memoryRows gives peak resident sets: of the client alone and of the largest
// process of a run.
func memoryRows(ctx context.Context, agentos, empty, scratch string) ([]Row, error) {
	peak := func(name string, args ...string) (float64, error) {
		_, ps, err := timed(ctx, state(filepath.Join(scratch, "kept")), name, args...)
		if err != nil {
			return 0, err
		}
		return float64(ps.SysUsage().(*syscall.Rusage).Maxrss) / 1024, nil
	}
	base, err := peak(empty)
	if err != nil {
		return nil, err
	}
	version, err := peak(agentos, "--version")
	if err != nil {
		return nil, err
	}
	once, err := peak(agentos, "agent", "once", goal)
	if err != nil {
		return nil, err
	}
	return []Row{
		{Name: "memory of agentos --version", Value: version, Unit: "MiB", Base: base, BaseName: "trivial static Go program"},
		{Name: "memory of a run's client", Value: once, Unit: "MiB", Base: base, BaseName: "trivial static Go program"},
	}, nil
}

func state(dir string) []string {
	return []string{"AGENTOS_STATE_DIR=" + dir, "AGENTOS_MODEL_BACKEND=rules", "CI=", "NO_COLOR=1"}
}

// emptyGo builds the program that does nothing.
func emptyGo(ctx context.Context, scratch string) (string, error) {
	src, bin := filepath.Join(scratch, "empty.go"), filepath.Join(scratch, "empty")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		return "", err
	}
	_, _, err := timed(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-ldflags", "-s -w", "-o", bin, src)
	return bin, err
}
