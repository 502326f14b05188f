package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is how many processes groups hold and how many bytes of memory they use,
// each -1 where no controller of theirs counts it. paths are those of
// Group.Paths; groups that are gone count nothing.
func Usage(paths []string) (processes, memory int64) {
	processes, memory = -1, -1
	for _, p := range paths {
		if n, ok := number(p, "pids.current"); ok {
			processes = n
		}
		for _, f := range []string{"memory.current", "memory.usage_in_bytes"} {
			if n, ok := number(p, f); ok {
				memory = n
			}
		}
	}
	return processes, memory
}

func number(dir, file string) (int64, bool) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
