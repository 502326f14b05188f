package sandbox

import (
	"path"
	"strconv"
	"strings"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// Bounds of the look for sockets.
const (
	maxWalk  = 1 << 20 // entries in all granted trees
	maxDepth = 128     // folders within folders
	maxShown = 5       // names in a message
)

// foreign looks through the granted trees for sockets and FIFOs. A read-only
// mount stops neither connect(2) nor a write into a FIFO, so one that somebody
// outside serves is a way out. Devices need no look: the mounts are nodev.
func (b *builder) foreign() error {
	w := &walk{b: b, left: maxWalk}
	for _, t := range b.targets() {
		m := b.at[t]
		if m.Kind != Bind || m.Why == "system" || m.Target != m.Source {
			continue
		}
		if up := b.enclosing(t); up != nil && up.Kind == Bind && up.Why != "system" {
			continue // seen from above
		}
		if e, ok := there(b.host, t); ok && e.isDir() && !b.allows(t) {
			if err := w.dir(t, 0); err != nil {
				return err
			}
		}
	}
	if w.repos.n > 0 {
		b.note("repositories inside writable folders keep writable hooks and configuration: %s; look before you run git there", w.repos)
	}
	if w.doors.n > 0 {
		return fault.New(fault.Denied, "remove them, grant a narrower folder, or give --allow-sockets "+path.Dir(w.doors.first[0]),
			"plan sandbox: sockets or FIFOs in the granted folders lead out of the sandbox: %s", w.doors)
	}
	return nil
}

// allows reports whether a tree is in one whose sockets may be reached.
func (b *builder) allows(p string) bool {
	for a := range b.allowed {
		if sandboxplan.Below(p, a) {
			return true
		}
	}
	return false
}

// names keeps the first few of many.
type names struct {
	first []string
	n     int
}

func (s *names) add(p string) {
	if s.n++; len(s.first) < maxShown {
		s.first = append(s.first, p)
	}
}

func (s names) String() string {
	var q []string
	for _, p := range s.first {
		q = append(q, strconv.Quote(p))
	}
	out := strings.Join(q, ", ")
	if more := s.n - len(s.first); more > 0 {
		out += sprintf(" and %d more", more)
	}
	return out
}

type walk struct {
	b            *builder
	left         int
	doors, repos names
}

func (w *walk) dir(dir string, depth int) error {
	list, err := w.b.host.ReadDir(dir, max(w.left, 0))
	if err == ErrMany || depth > maxDepth {
		return fault.New(fault.Limit, "grant a narrower folder, or give --allow-sockets "+dir+" to skip the look",
			"plan sandbox: look for sockets below %q: more than %d entries or %d levels", dir, maxWalk, maxDepth)
	}
	if err != nil {
		return nil // what the owner can't list, the agent can't either
	}
	w.left -= len(list)
	for _, e := range list {
		p := path.Join(dir, e.Name)
		switch {
		case w.b.allowed[p]:
			continue
		case special(e):
			w.doors.add(p)
		case e.Name == ".git" && depth > 0 && w.writable(p):
			w.repos.add(dir)
		}
		if e.isDir() {
			if err := w.dir(p, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) writable(p string) bool {
	m := w.b.covering(p)
	return m != nil && m.Write && sandboxplan.Below(p, m.Target)
}
