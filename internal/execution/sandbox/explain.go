package sandbox

import (
	"cmp"
	"strconv"
	"strings"

	"agentos/internal/lib/sandboxplan"
)

// Line is one line of an explanation, as PlanLine of the API.
type Line struct {
	Section string // identity, files, network, limits, kernel
	Subject string
	Access  string
	Why     string
}

// Explain tells people what a plan gives, section by section. It says all that
// the plan holds: what is not listed is absent.
func Explain(p Plan) []Line {
	id := p.Identity
	lines := []Line{
		{"identity", "strength", string(p.Strength), strengthWhy(p.Strength)},
		{"identity", "user", sprintf("%s, UID %d, GID %d", id.User, id.UID, id.GID), "inside; never root"},
		{"identity", "files belong to", sprintf("UID %d, GID %d", id.OwnerUID, id.OwnerGID), "what the agent writes is the owner's on disk"},
		{"identity", "command", strings.Join(quoted(p.Command), " "), "in " + p.Dir},
	}
	for _, m := range p.Mounts {
		lines = append(lines, Line{"files", m.Target, access(m), m.Why})
	}
	for _, f := range p.Files {
		lines = append(lines, Line{"files", f.Path, "read, made for the sandbox", f.Why})
	}
	if p.Strength == LandlockOnly {
		lines = append(lines, Line{"files", "everything else", "refused, but visible by name", "Landlock allows what is listed"})
		lines = append(lines, Line{"network", "TCP", "refused", "Landlock; other protocols are not covered at this strength"})
	} else {
		lines = append(lines, Line{"files", "everything else", "absent", "the root is built from this list"})
		lines = append(lines, Line{"network", "loopback of its own", "only that", "an own network namespace; no network in this version"})
	}
	for _, e := range p.Env {
		name, value, _ := strings.Cut(e, "=")
		lines = append(lines, Line{"identity", "variable " + name, strconv.Quote(value), "the whole environment is listed"})
	}
	return append(append(lines, limitLines(p.Limits)...), kernelLines(p)...)
}

func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\$&|;<>()*?`, r) }) {
			out[i] = strconv.Quote(a)
		}
	}
	return out
}

func strengthWhy(s Strength) string {
	return map[Strength]string{
		Full:         "namespaces, an own UID, control groups, Landlock, seccomp",
		Rootless:     "the same in a user namespace, with the owner's UID",
		LandlockOnly: "Landlock, seccomp and resource limits; no namespaces",
	}[s]
}

func access(m Mount) string {
	var out []string
	switch m.Kind {
	case Link:
		return "link to " + m.Source
	case Folder:
		return "empty folder"
	case Proc:
		return "read"
	case Dev:
		return "the few devices listed"
	}
	out = append(out, "read")
	if m.Write {
		out = append(out, "write")
	}
	if m.Exec {
		out = append(out, "exec")
	}
	text := strings.Join(out, ", ")
	switch {
	case m.Kind == Tmpfs:
		text += ", private, at most " + sandboxplan.Size(m.SizeBytes)
	case m.Source != m.Target:
		text += ", is " + m.Source + " outside"
	}
	return text
}

func limitLines(l Limits) []Line {
	var out []Line
	for _, x := range []struct {
		name, why string
		n         int64
		show      func(int64) string
	}{
		{"pids", "processes and threads", l.PIDs, count},
		{"memory", "of all processes", l.MemoryBytes, sandboxplan.Size},
		{"cpu", "of one CPU", l.CPUPercent, func(n int64) string { return count(n) + "%" }},
		{"tmp", "size of /tmp, and of /var/tmp", cmp.Or(l.TmpBytes, defaultTmp), sandboxplan.Size},
		{"files", "open at once in a process", l.OpenFiles, count},
		{"file", "size of one file", l.FileBytes, sandboxplan.Size},
	} {
		text := "as on the host"
		if x.n != 0 {
			text = x.show(x.n)
		}
		out = append(out, Line{"limits", x.name, text, x.why})
	}
	return out
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

func kernelLines(p Plan) []Line {
	lines := []Line{
		{"kernel", "privileges", "none", "no_new_privs, empty capability sets; setuid programs give nothing"},
		{"kernel", "system calls", "filtered", "seccomp"},
	}
	nested := Line{"kernel", "nested namespaces", "refused", "the profile doesn't allow them"}
	if p.Nested {
		nested.Access, nested.Why = "allowed", "the profile says that the program brings a sandbox of its own"
	}
	return append(lines, nested)
}
