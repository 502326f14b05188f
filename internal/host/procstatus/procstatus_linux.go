// Package procstatus reads what the kernel says about a process: its identity
// and its locks. It is how a supervisor checks that a part of a run is what it
// should be before it hands it anything.
//
// State owned: none. Imports: standard library. Imported by: control. The
// caller must hold the process (not yet reaped), or the number may be
// another's. Source: proc_pid_status(5). Tests: procstatus_linux_test.go,
// FuzzParse.
package procstatus

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Status is a process's identity and locks.
type Status struct {
	UID, EUID, GID, EGID uint32
	Groups               []uint32
	NoNewPrivs           bool
	Seccomp              int // 0 none, 1 strict, 2 filter
	CapEff, CapPrm       uint64
}

const maxStatus = 64 << 10 // bytes

// Read returns the status of a process.
func Read(pid int) (Status, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Status{}, fmt.Errorf("read status of process %d: %w", pid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStatus))
	if err != nil {
		return Status{}, fmt.Errorf("read status of process %d: %w", pid, err)
	}
	return Parse(b)
}

// Parse reads a status file. A missing or odd line that matters is an error.
func Parse(b []byte) (Status, error) {
	var s Status
	seen := map[string]bool{}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		key, value, ok := strings.Cut(sc.Text(), ":")
		if !ok {
			continue
		}
		if err := s.set(key, strings.Fields(value)); err != nil {
			return Status{}, fmt.Errorf("parse process status: %s: %w", key, err)
		}
		seen[key] = true
	}
	for _, k := range []string{"Uid", "Gid", "NoNewPrivs", "Seccomp", "CapEff", "CapPrm"} {
		if !seen[k] {
			return Status{}, fmt.Errorf("parse process status: no %s line", k)
		}
	}
	return s, sc.Err()
}

func (s *Status) set(key string, f []string) (err error) {
	switch key {
	case "Uid":
		s.UID, s.EUID, err = pair(f)
	case "Gid":
		s.GID, s.EGID, err = pair(f)
	case "Groups":
		for _, g := range f {
			n, err := strconv.ParseUint(g, 10, 32)
			if err != nil {
				return err
			}
			s.Groups = append(s.Groups, uint32(n))
		}
	case "NoNewPrivs":
		s.NoNewPrivs = len(f) == 1 && f[0] == "1"
	case "Seccomp":
		s.Seccomp, err = strconv.Atoi(strings.Join(f, " "))
	case "CapEff":
		s.CapEff, err = strconv.ParseUint(strings.Join(f, " "), 16, 64)
	case "CapPrm":
		s.CapPrm, err = strconv.ParseUint(strings.Join(f, " "), 16, 64)
	}
	return err
}

func pair(f []string) (real, effective uint32, err error) {
	if len(f) != 4 {
		return 0, 0, fmt.Errorf("%d fields, want 4", len(f))
	}
	r, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil {
		return 0, 0, err
	}
	e, err := strconv.ParseUint(f[1], 10, 32)
	return uint32(r), uint32(e), err
}
