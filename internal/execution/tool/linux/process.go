//go:build linux

package linux

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
)

type processesDoc struct {
	Seen     int          `json:"seen"`
	Interval int64        `json:"interval_ms"`
	Hottest  []processDoc `json:"hottest"`
}

type processDoc struct {
	PID  int     `json:"pid"`
	Comm string  `json:"comm"`
	UID  *uint32 `json:"uid,omitempty"` // absent when the process went away
	CPU  float64 `json:"cpu_percent"`
	RSS  uint64  `json:"rss"`
}

const (
	maxProcs  = 65536 // entries of /proc looked at
	userHZ    = 100   // clock ticks a second in /proc, the same on every Go platform
	maxStat   = 4096  // bytes of one stat line; the kernel's is below 1 KiB
	maxStatus = 16 << 10
)

// procStat is the part of /proc/PID/stat that is used here.
type procStat struct {
	pid          int
	comm         string
	ticks, start uint64
	rss          uint64 // pages
}

// parseStat parses one /proc/PID/stat line (proc_pid_stat(5)). The name is what
// stands between the first "(" and the last ")", for a process may put both and
// line ends into it.
func parseStat(b []byte) (procStat, error) {
	malformed := errors.New("parse process stat: malformed")
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return procStat{}, malformed
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	f := bytes.Fields(b[end+1:]) // f[0] is field 3
	if err != nil || pid < 1 || len(f) < 22 {
		return procStat{}, malformed
	}
	var v [4]uint64
	for i, field := range []int{14, 15, 22, 24} {
		if v[i], err = strconv.ParseUint(string(f[field-3]), 10, 64); err != nil {
			return procStat{}, malformed
		}
	}
	const limit = 1 << 52 // far beyond any machine; no sum or product below overflows
	if v[0] > limit || v[1] > limit || v[3] > limit {
		return procStat{}, malformed
	}
	return procStat{pid, string(b[open+1 : end]), v[0] + v[1], v[2], v[3]}, nil
}

// readProcesses samples every visible process twice, h.Interval apart, and
// returns the n that used most CPU between, then those with most memory.
func readProcesses(ctx context.Context, h Host, n int) (*processesDoc, error) {
	before, err := sample(ctx, h)
	if err != nil {
		return nil, err
	}
	t0 := h.Now()
	if err := h.Pause(ctx, h.Interval); err != nil {
		return nil, err
	}
	after, err := sample(ctx, h)
	if err != nil {
		return nil, err
	}
	elapsed := h.Now().Sub(t0)
	d := &processesDoc{Seen: len(after), Interval: elapsed.Milliseconds(), Hottest: []processDoc{}}
	type hot struct {
		procStat
		used uint64
	}
	list := make([]hot, 0, len(after))
	for pid, p := range after {
		var used uint64
		// The same pid with another start is another process.
		if q, ok := before[pid]; ok && q.start == p.start && p.ticks > q.ticks {
			used = p.ticks - q.ticks
		}
		list = append(list, hot{p, used})
	}
	slices.SortFunc(list, func(a, b hot) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(b.rss, a.rss), cmp.Compare(a.pid, b.pid))
	})
	for _, p := range list[:min(n, len(list))] {
		cpu := 0.0
		if elapsed > 0 {
			cpu = math.Round(float64(p.used)*1000/userHZ/elapsed.Seconds()) / 10
		}
		d.Hottest = append(d.Hottest, processDoc{
			PID: p.pid, Comm: line(p.comm, 64), UID: realUID(h, p.pid), CPU: cpu, RSS: product(p.rss, uint64(os.Getpagesize())),
		})
	}
	return d, nil
}

// sample reads the stat of every visible process. One that ends meanwhile, or
// whose line is malformed, is left out.
func sample(ctx context.Context, h Host) (map[int]procStat, error) {
	list, _, err := names(h.path("/proc"), maxProcs)
	if err != nil {
		return nil, err
	}
	m := make(map[int]procStat, len(list))
	for _, name := range list {
		pid, err := strconv.Atoi(name)
		if err != nil || pid < 1 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := readFile(h.path("/proc/"+name+"/stat"), maxStat)
		if err != nil {
			continue
		}
		if p, err := parseStat(b); err == nil && p.pid == pid {
			m[pid] = p
		}
	}
	if len(m) == 0 {
		return nil, errors.New("read processes: none visible")
	}
	return m, nil
}

// realUID is the real user ID of a process, nil when it can't be read.
func realUID(h Host, pid int) *uint32 {
	b, err := readFile(h.path(fmt.Sprintf("/proc/%d/status", pid)), maxStatus)
	if err != nil {
		return nil
	}
	for l := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(l, []byte("Uid:"))
		if f := bytes.Fields(rest); ok && len(f) > 0 {
			if v, err := strconv.ParseUint(string(f[0]), 10, 32); err == nil {
				uid := uint32(v)
				return &uid
			}
		}
	}
	return nil
}
