package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUsage(t *testing.T) {
	v1p, v1m, v2, empty := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(v1p, "pids.current"):          "7\n",
		filepath.Join(v1m, "memory.usage_in_bytes"): "4096\n",
		filepath.Join(v2, "pids.current"):           "3\n",
		filepath.Join(v2, "memory.current"):         "8192\n",
		filepath.Join(empty, "pids.current"):        "max\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		paths             []string
		processes, memory int64
	}{
		{nil, -1, -1},
		{[]string{empty, "/no/such/group"}, -1, -1},
		{[]string{v1p, v1m}, 7, 4096},
		{[]string{v2}, 3, 8192},
	} {
		if p, m := Usage(tc.paths); p != tc.processes || m != tc.memory {
			t.Errorf("%v: %d, %d", tc.paths, p, m)
		}
	}
}
