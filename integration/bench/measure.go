package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// interleave runs each operation n times in turn, so that a machine that slows
// down slows all of them down, and returns the median of each in milliseconds.
// One round before it warms caches and isn't counted.
func interleave(n int, ops ...func() (time.Duration, error)) ([]float64, error) {
	got := make([][]float64, len(ops))
	for round := range n + 1 {
		for i, op := range ops {
			d, err := op()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				got[i] = append(got[i], float64(d.Microseconds())/1000)
			}
		}
	}
	out := make([]float64, len(ops))
	for i, vs := range got {
		out[i] = median(vs)
	}
	return out, nil
}

func median(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(vs))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// timed runs a command to its end. Errors carry what it said.
func timed(ctx context.Context, env []string, name string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("run %q %q: %w: %.400s", name, args, err, said.String())
	}
	return took, nil
}

// machine describes where the figures come from.
func machine() string {
	cpu := field("/proc/cpuinfo", "model name")
	kernel := "unknown"
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(b))
	}
	rev := "unknown"
	if b, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		rev = strings.TrimSpace(string(b))
	}
	return fmt.Sprintf("Machine: %s, %d cores, %s of memory; Linux %s; %s; %s UTC; revision %s.",
		cpu, runtime.NumCPU(), memory(), kernel, runtime.Version(), time.Now().UTC().Format("2006-01-02 15:04"), rev)
}

func memory() string {
	var kib int64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kib); err != nil {
		return "unknown size"
	}
	return fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20))
}

// field returns the value of the first "key : value" line of a file.
func field(file, key string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
