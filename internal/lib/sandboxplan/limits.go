package sandboxplan

import (
	"math"
	"strconv"
	"strings"

	"agentos/internal/lib/fault"
)

// LimitNames are the names that Set knows, in the order in which they are shown.
func LimitNames() []string { return []string{"pids", "memory", "cpu", "tmp", "files", "file"} }

// Set sets one limit by name: pids=512 (processes and threads), memory=4G,
// cpu=200% (of one CPU), tmp=1G (of /tmp), files=1024 (open at once), file=10G
// (size of one file). Sizes take K, M, G and T, powers of 1024, optionally
// followed by B or iB. "none" leaves the host's own limit. Errors are faults of
// kind Usage.
func (l *Limits) Set(name, value string) error {
	slot := l.slot(name)
	if slot == nil {
		return refuse("use one of "+strings.Join(LimitNames(), ", "), "set limit %q: there is no such limit", clip(name))
	}
	if value == "none" {
		*slot = 0
		return nil
	}
	n, ok := int64(0), false
	next := "write a whole number, for example " + name + "=1024"
	switch name {
	case "memory", "tmp", "file":
		n, ok = parseSize(value)
		next = "write a size, for example " + name + "=2G"
	case "cpu":
		digits, percent := strings.CutSuffix(value, "%")
		n, ok = parseCount(digits)
		ok = ok && percent
		next = "write percent of one CPU, for example cpu=150%"
	default:
		n, ok = parseCount(value)
	}
	if !ok {
		return refuse(next, "set limit %s: can't read %q", name, clip(value))
	}
	if n == 0 {
		return refuse("write none for the host's own limit", "set limit %s: 0 allows nothing to run", name)
	}
	old := *slot
	*slot = n
	if err := l.check(); err != nil {
		*slot = old
		return fault.Wrap(err, fault.Usage, fault.NextOf(err), "set limit %s", name)
	}
	return nil
}

func (l *Limits) slot(name string) *int64 {
	switch name {
	case "pids":
		return &l.PIDs
	case "memory":
		return &l.MemoryBytes
	case "cpu":
		return &l.CPUPercent
	case "tmp":
		return &l.TmpBytes
	case "files":
		return &l.OpenFiles
	case "file":
		return &l.FileBytes
	}
	return nil
}

// parseCount reads decimal digits; no sign, no spaces.
func parseCount(s string) (int64, bool) {
	if s == "" || strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' }) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func parseSize(s string) (int64, bool) {
	digits := strings.TrimRight(s, "KMGTiBkmgtb")
	unit := strings.ToUpper(s[len(digits):])
	shift := 0
	switch strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I") {
	case "":
		if unit != "" && unit != "B" {
			return 0, false
		}
	case "K":
		shift = 10
	case "M":
		shift = 20
	case "G":
		shift = 30
	case "T":
		shift = 40
	default:
		return 0, false
	}
	n, ok := parseCount(digits)
	if !ok || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}

// Size writes bytes the way Set reads them, exactly.
func Size(n int64) string {
	for i, unit := range []string{"T", "G", "M", "K"} {
		if shift := 40 - 10*i; n != 0 && n&(1<<shift-1) == 0 {
			return strconv.FormatInt(n>>shift, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}
