//go:build linux

package linux

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

type systemDoc struct {
	Kernel      *kernelDoc      `json:"kernel,omitempty"`
	Uptime      *uptimeDoc      `json:"uptime,omitempty"`
	Load        *loadDoc        `json:"load,omitempty"`
	Pressure    *pressureDoc    `json:"pressure,omitempty"`
	Memory      *memoryDoc      `json:"memory,omitempty"`
	Filesystems *filesystemsDoc `json:"filesystems,omitempty"`
	OS          *osDoc          `json:"os,omitempty"`
	Processes   *processesDoc   `json:"processes,omitempty"`
	Unavailable []sectionReason `json:"unavailable,omitempty"`
}

type kernelDoc struct {
	Name    string `json:"name"`
	Release string `json:"release"`
	Version string `json:"version"`
	Machine string `json:"machine"`
}

type uptimeDoc struct {
	Seconds float64 `json:"seconds"`
}

type loadDoc struct {
	Load1  float64 `json:"load1"`
	Load5  float64 `json:"load5"`
	Load15 float64 `json:"load15"`
}

type memoryDoc struct {
	Total     *uint64 `json:"total,omitempty"`
	Available *uint64 `json:"available,omitempty"`
	Free      *uint64 `json:"free,omitempty"`
	Buffers   *uint64 `json:"buffers,omitempty"`
	Cached    *uint64 `json:"cached,omitempty"`
	Dirty     *uint64 `json:"dirty,omitempty"`
	SwapTotal *uint64 `json:"swap_total,omitempty"`
	SwapFree  *uint64 `json:"swap_free,omitempty"`
}

type osDoc struct {
	ID         string `json:"id,omitempty"`
	VersionID  string `json:"version_id,omitempty"`
	Name       string `json:"name,omitempty"`
	PrettyName string `json:"pretty_name,omitempty"`
}

type sectionReason struct {
	Section string `json:"section"`
	Reason  string `json:"reason"`
}

func (d *systemDoc) lists() []list {
	var l []list
	if d.Filesystems != nil {
		l = append(l, listOf("/filesystems/mounts", &d.Filesystems.Mounts))
	}
	if d.Processes != nil {
		l = append(l, listOf("/processes/hottest", &d.Processes.Hottest))
	}
	return l
}

func (d *systemDoc) cuts() []string {
	if d.Filesystems != nil && d.Filesystems.more {
		return []string{"/filesystems/mounts"}
	}
	return nil
}

// inspectSystem reads the wanted sections. One that can't be read is listed
// under unavailable with its reason; the others are still reported.
func inspectSystem(ctx context.Context, h Host, a systemArgs) (document, error) {
	d := &systemDoc{}
	want := a.Sections
	if want == nil {
		want = sections
	}
	for _, s := range want {
		err := d.read(ctx, h, s, a)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			d.Unavailable = append(d.Unavailable, sectionReason{s, line(err.Error(), 512)})
		}
	}
	return d, nil
}

func (d *systemDoc) read(ctx context.Context, h Host, section string, a systemArgs) (err error) {
	switch section {
	case "kernel":
		d.Kernel, err = readKernel(h)
	case "uptime":
		d.Uptime, err = readUptime(h)
	case "load":
		d.Load, err = readLoad(h)
	case "pressure":
		d.Pressure, err = readPressure(h)
	case "memory":
		d.Memory, err = readMemory(h)
	case "filesystems":
		d.Filesystems, err = readFilesystems(ctx, h)
	case "os":
		d.OS, err = readOS(h)
	case "processes":
		n := 10
		if a.Processes != nil {
			n = *a.Processes
		}
		d.Processes, err = readProcesses(ctx, h, n)
	}
	return err
}

func readKernel(h Host) (*kernelDoc, error) {
	var u unix.Utsname
	if err := h.Uname(&u); err != nil {
		return nil, fmt.Errorf("read kernel name: %w", err)
	}
	return &kernelDoc{
		Name: line(unix.ByteSliceToString(u.Sysname[:]), 65), Release: line(unix.ByteSliceToString(u.Release[:]), 65),
		Version: line(unix.ByteSliceToString(u.Version[:]), 65), Machine: line(unix.ByteSliceToString(u.Machine[:]), 65),
	}, nil
}

// finite refuses what JSON can't say and no kernel prints.
func finite(v ...float64) error {
	for _, f := range v {
		if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
			return errors.New("value out of range")
		}
	}
	return nil
}

func readUptime(h Host) (*uptimeDoc, error) {
	b, err := readFile(h.path("/proc/uptime"), 4096)
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	s, err := strconv.ParseFloat(first, 64)
	if err != nil || finite(s) != nil {
		return nil, errors.New("parse uptime: malformed")
	}
	return &uptimeDoc{s}, nil
}

func readLoad(h Host) (*loadDoc, error) {
	p, err := procfs.NewFS(h.path("/proc"))
	if err != nil {
		return nil, err
	}
	l, err := p.LoadAvg()
	if err != nil {
		return nil, err
	}
	if err := finite(l.Load1, l.Load5, l.Load15); err != nil {
		return nil, fmt.Errorf("parse load: %w", err)
	}
	return &loadDoc{l.Load1, l.Load5, l.Load15}, nil
}

func readMemory(h Host) (*memoryDoc, error) {
	p, err := procfs.NewFS(h.path("/proc"))
	if err != nil {
		return nil, err
	}
	m, err := p.Meminfo()
	if err != nil {
		return nil, err
	}
	if m.MemTotalBytes == nil {
		return nil, errors.New("parse meminfo: no MemTotal")
	}
	d := &memoryDoc{
		m.MemTotalBytes, m.MemAvailableBytes, m.MemFreeBytes, m.BuffersBytes, m.CachedBytes, m.DirtyBytes,
		m.SwapTotalBytes, m.SwapFreeBytes,
	}
	for _, v := range []*uint64{d.Total, d.Available, d.Free, d.Buffers, d.Cached, d.Dirty, d.SwapTotal, d.SwapFree} {
		if v != nil && *v > maxSafe {
			return nil, errors.New("parse meminfo: value out of range")
		}
	}
	return d, nil
}

func readOS(h Host) (*osDoc, error) {
	b, err := readFile(h.path("/etc/os-release"), 64<<10)
	if err != nil {
		// os-release(5): /usr/lib/os-release where /etc has none.
		if b, err = readFile(h.path("/usr/lib/os-release"), 64<<10); err != nil {
			return nil, err
		}
	}
	d := &osDoc{}
	into := map[string]*string{"ID": &d.ID, "VERSION_ID": &d.VersionID, "NAME": &d.Name, "PRETTY_NAME": &d.PrettyName}
	for l := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(l), "=")
		if p := into[k]; p != nil {
			*p = line(strings.Trim(v, `"'`), 256)
		}
	}
	return d, nil
}
