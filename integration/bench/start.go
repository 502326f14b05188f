package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
` + "`agentos agent once \"" + goal + "\"`" + ` with the rules backend: daemon, shim and loop started, a tool run,
every record durable, log verified; 250 ms of it are the interval over which the tool measures CPU use. Memory is the
largest resident set of one process.`}
	empty, err := buildGo(ctx, scratch, "empty", "package main\n\nfunc main() {}\n")
	if err != nil {
		return out, err
	}
	agentos, err := filepath.Abs(filepath.Join(s.bin, "agentos"))
	if err != nil {
		return out, err
	}
	op := func(name string, args ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			return timed(ctx, nil, name, args...)
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
			return timed(ctx, state(dir()), agentos, "agent", "once", goal)
		}
	}
	ms, err := interleave(max(3, s.runs/3),
		once(func() string { n++; return filepath.Join(scratch, "new", strconv.Itoa(n)) }),
		once(func() string { return filepath.Join(scratch, "kept") }),
		func() (time.Duration, error) { return timed(ctx, nil, empty) })
	if err != nil {
		return nil, err
	}
	return []Row{
		{Name: "agent once, new state", Value: ms[0], Unit: "ms", Base: ms[2], BaseName: "trivial static Go program"},
		{Name: "agent once, state kept", Value: ms[1], Unit: "ms", Base: ms[2], BaseName: "trivial static Go program"},
	}, nil
}

// peakSource runs its arguments and prints the peak resident set, in KiB, of the
// largest process below it. It is a program of its own because a child's peak
// counts that of the process that it was forked from, and this one is large.
const peakSource = `package main

import (
	"os"
	"syscall"
)

func main() {
	null, _ := os.OpenFile("/dev/null", os.O_RDWR, 0)
	pid, err := syscall.ForkExec(os.Args[1], os.Args[1:], &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
	if err != nil {
		os.Exit(125)
	}
	var ws syscall.WaitStatus
	var ru syscall.Rusage
	if _, err := syscall.Wait4(pid, &ws, 0, &ru); err != nil || ws.ExitStatus() != 0 {
		os.Exit(126)
	}
	digits := []byte{}
	for n := ru.Maxrss; n > 0; n /= 10 {
		digits = append([]byte{byte('0' + n%10)}, digits...)
	}
	os.Stdout.Write(digits)
}
`

// memoryRows gives peak resident sets: of the client alone and of the largest
// process of a run.
func memoryRows(ctx context.Context, agentos, empty, scratch string) ([]Row, error) {
	tool, err := buildGo(ctx, scratch, "peak", peakSource)
	if err != nil {
		return nil, err
	}
	peak := func(argv ...string) (float64, error) {
		cmd := exec.CommandContext(ctx, tool, argv...)
		cmd.Env = append(cmd.Environ(), state(filepath.Join(scratch, "kept"))...)
		out, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("measure memory of %q: %w", argv, err)
		}
		kib, err := strconv.ParseFloat(string(out), 64)
		return kib / 1024, err
	}
	var mib [3]float64
	for i, argv := range [][]string{{empty}, {agentos, "--version"}, {agentos, "agent", "once", goal}} {
		if mib[i], err = peak(argv...); err != nil {
			return nil, err
		}
	}
	return []Row{
		{Name: "memory of agentos --version", Value: mib[1], Unit: "MiB", Base: mib[0], BaseName: "trivial static Go program"},
		{Name: "largest process of agent once", Value: mib[2], Unit: "MiB", Base: mib[0], BaseName: "trivial static Go program"},
	}, nil
}

func state(dir string) []string {
	return []string{"AGENTOS_STATE_DIR=" + dir, "AGENTOS_MODEL_BACKEND=rules", "CI=", "NO_COLOR=1"}
}

// buildGo builds a static program from one file.
func buildGo(ctx context.Context, scratch, name, text string) (string, error) {
	src, bin := filepath.Join(scratch, name+".go"), filepath.Join(scratch, name)
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		return "", err
	}
	_, err := timed(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-ldflags", "-s -w", "-o", bin, src)
	return bin, err
}
