package cgroup

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hierarchy is a mounted one.
type hierarchy struct {
	v2          bool
	controllers []string // of version 1
	mount       string   // where it is
	root        string   // which part of it is there
}

// used are the controllers of version 1 that are of use here.
func used() []string { return []string{"pids", "memory", "cpu", "freezer"} }

// parseMounts reads proc_pid_mountinfo(5).
func parseMounts(text string) []hierarchy {
	var out []hierarchy
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		h := hierarchy{mount: unescape(l[4]), root: unescape(l[3])}
		if !filepath.IsAbs(h.mount) || !filepath.IsAbs(h.root) {
			continue
		}
		switch r[0] {
		case "cgroup2":
			h.v2 = true
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				if slices.Contains(used(), o) {
					h.controllers = append(h.controllers, o)
				}
			}
			if h.controllers == nil {
				continue
			}
		default:
			continue
		}
		out = append(out, h)
	}
	return out
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseOwn reads proc_pid_cgroup(5): controller → path; "" is version 2.
func parseOwn(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, c := range strings.Split(parts[1], ",") {
			out[c] = parts[2]
		}
	}
	return out
}

// base is the folder in which this process may make groups, or "". Root uses the
// hierarchy's root; others the uppermost folder above their own that was given
// to them, since a process can be moved below it only.
func (h hierarchy) base(own map[string]string, root bool) string {
	if root {
		return h.mount
	}
	key := ""
	if !h.v2 {
		key = h.controllers[0]
	}
	rel, err := filepath.Rel(h.root, own[key])
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") || own[key] == "" {
		return ""
	}
	found := ""
	for dir := filepath.Join(h.mount, rel); ; dir = filepath.Dir(dir) {
		if unix.Access(dir, unix.W_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
			return found
		}
		found = dir
		if dir == h.mount {
			return found
		}
	}
}
