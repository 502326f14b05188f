//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/integration/sandbox/attempt"
)

// The columns of the table.
const (
	outside       = "outside"
	outsideAsRoot = "outside, as root"
	full          = "inside, full"
	rootless      = "inside, rootless"
)

// places maps a column to what happened there.
type places map[string]outcomes

// absent are attempts that this project's kernels may have nothing for: the
// control fails as well, with the reason.
func absent() map[string]string {
	return map[string]string{
		"device: open /dev/mem": "CONFIG_DEVMEM is off", "device: open /dev/port": "CONFIG_DEVPORT is off",
		"kernel: kexec": "CONFIG_KEXEC is off", "kernel: load a module": "CONFIG_MODULES is off",
		"kernel: ports": "CONFIG_X86_IOPL_IOPERM is off", "kernel: x32 call": "CONFIG_X86_X32_ABI is off",
		"proc: kcore": "CONFIG_PROC_KCORE is off", "proc: sysrq-trigger": "CONFIG_MAGIC_SYSRQ is off",
		"proc: write sys/modprobe": "CONFIG_MODULES is off", "kernel: 32-bit call": "no 32-bit calls on this architecture",
		"kernel: modify_ldt": "not on this architecture",
	}
}

// gaps are attempts that do work inside, where, and why that is so.
func gaps(notes string) map[string]map[string]string {
	out := map[string]map[string]string{
		"socket: made later in the workspace": {
			full:     "Landlock rules pathname sockets from ABI 9 on only; what is there at the start is refused",
			rootless: "the same",
		},
	}
	for name, limit := range map[string]string{"resource: memory": "memory", "resource: processes": "pids"} {
		if unenforced(notes, limit) { // the run says so
			out[name] = map[string]string{rootless: "no control group may be made by this user here; the run says so"}
		}
	}
	return out
}

func unenforced(notes, limit string) bool {
	for line := range strings.Lines(notes) {
		if _, list, ok := strings.Cut(line, "nothing on this host enforces "); ok && slices.Contains(strings.Split(strings.TrimSpace(list), ", "), limit) {
			return true
		}
	}
	return false
}

// elsewhere names what stops attempts that the layers can't be tried on one by
// one: it is how a run is started, not a lock.
func elsewhere(name string) []string {
	switch {
	case name == "kill all":
		return []string{"pid namespace", "landlock"}
	case name == "tty: is the caller's":
		return []string{"private terminal"}
	case name == "socket: through root of PID 1":
		return []string{"mount view (that of PID 1 is the same)"}
	case strings.HasPrefix(name, "inherit: "):
		return []string{"descriptors, environment and signals made anew"}
	}
	return nil
}

// TestEscape makes every attempt outside, where it must work, and inside, where
// it must not, and finds out which layers stop it. Spec: AOS-14, AOS-17, C-05, C-11.
func TestEscape(t *testing.T) {
	all := places{}
	notes := ""
	var mu sync.Mutex
	set := func(name string, o outcomes, said string) {
		mu.Lock()
		defer mu.Unlock()
		all[name], notes = o, notes+said
	}
	var stops layers
	t.Run("places", func(t *testing.T) {
		for name, uid := range people() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := &trial{world: newWorld(t, uid)}
				in, out := full, outsideAsRoot
				if name == "rootless" {
					in, out = rootless, outside
				}
				set(in, w.sandboxed(t), w.notes)
				w.alive()
				set(out, w.bare(t, uid), "")
				if name == "full" {
					stops = w.peel(t)
				}
				w.alive()
			})
		}
	})
	if len(all) < 2*len(people()) || root() && stops.open == nil {
		return // it has failed
	}
	rows := judge(t, all, notes, stops)
	if root() {
		document(t, rows)
	}
}

// layers says for each attempt which layers stop it alone, and which are needed.
type layers struct {
	alone, pairs, needed map[string][]string
	open                 map[string]bool // works with no layer at all
}

// peel makes the attempts with each layer of a running sandbox alone, and with
// all but each.
func (w *trial) peel(t *testing.T) layers {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	mark := "mark-" + strconv.Itoa(os.Getpid())
	c := w.run(ctx, limits(), w.probe, "sleep", mark)
	must(t, c.Start())
	defer func() { _ = c.Process.Signal(os.Interrupt); _ = c.Wait() }()
	pid := 0
	if !eventually(20*time.Second, func() bool { pid = w.member(mark); return pid != 0 }) {
		t.Fatal("the sandbox did not start")
	}
	l := layers{map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string]bool{}}
	for name, r := range w.with(ctx, t, pid, nil) {
		l.open[name] = r.Succeeded
	}
	for name, r := range w.with(ctx, t, pid, attempt.AllLayers()) {
		if r.Succeeded && gaps("")[name] == nil {
			t.Errorf("%s works with every layer put on by the suite itself: %s", name, r.Detail)
		}
	}
	for _, c := range together() {
		for name, r := range w.with(ctx, t, pid, c.layers) {
			if !r.Succeeded {
				l.pairs[name] = append(l.pairs[name], c.name)
			}
		}
	}
	for _, one := range attempt.AllLayers() {
		for name, r := range w.with(ctx, t, pid, []string{one}) {
			if !r.Succeeded {
				l.alone[name] = append(l.alone[name], one)
			}
		}
		rest := slices.DeleteFunc(attempt.AllLayers(), func(s string) bool { return s == one })
		for name, r := range w.with(ctx, t, pid, rest) {
			if r.Succeeded {
				l.needed[name] = append(l.needed[name], one)
			}
		}
	}
	return l
}

// together are layers that stop something only with each other: modes of files
// say nothing to root, and nothing to the capable; CAP_PERFMON reads what Landlock
// denies, unless the process is hidden.
func together() []struct {
	name   string
	layers []string
} {
	return []struct {
		name   string
		layers []string
	}{
		{"uid with capabilities", []string{"uid", "capabilities"}},
		{"hidden processes", []string{"mount view", "uid", "capabilities"}},
		{"hidden processes with landlock", []string{"mount view", "uid", "landlock"}},
	}
}

// member is a process of the sandbox that carries mark.
func (w *trial) member(mark string) int {
	own, _ := os.Readlink("/proc/self/ns/pid")
	for _, pid := range processes(mark) {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil && ns != own {
			return pid
		}
	}
	return 0
}

// with makes the attempts with the given layers. Attempts on PID 1 are on that of
// the sandbox.
func (w *trial) with(ctx context.Context, t *testing.T, pid int, names []string) outcomes {
	out := outcomes{}
	enter := func(names []string, kinds ...string) []string {
		return append([]string{w.probe, "enter", w.layers(t, pid, names), "batch", w.file}, named(kinds...)...)
	}
	and := func(more ...string) []string {
		for _, n := range names {
			if !slices.Contains(more, n) {
				more = append(more, n)
			}
		}
		return more
	}
	// What gains privileges is tried by who has none.
	for _, argv := range [][]string{enter(names, "batch"), enter(and("pid namespace"), "PID 1"), enter(and("uid", "capabilities"), "exec")} {
		list, r := w.outside(ctx, 0, argv...)
		if r.code != 0 {
			t.Fatalf("layers %q: exit %d: %s", names, r.code, r.err)
		}
		out.add(list)
	}
	argv := append([]string{"caller", w.file}, enter(names, "tty")...)
	out.add(w.onTerminal(t, command(ctx, 0, w.home, w.targets.Workspace, w.probe, argv...)))
	delete(out, "tty: is the caller's")
	return out
}

// layers describes layers of the sandbox that pid is in.
func (w *trial) layers(t *testing.T, pid int, names []string) string {
	l := attempt.Layers{PID: pid, Names: names, Probe: w.probe, Workspace: w.targets.Workspace, ReadOnly: w.targets.ReadOnly}
	if pid != 0 {
		l.UID = uidOf(t, pid)
	} else {
		l.PID = os.Getpid()
	}
	b, err := json.Marshal(l)
	must(t, err)
	return string(b)
}

func uidOf(t *testing.T, pid int) (uid int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if n, _ := fmt.Sscanf(line, "Uid: %d", &uid); n == 1 {
			return uid
		}
	}
	t.Fatal("no UID of process", pid)
	return 0
}

// row is one line of the document.
type row struct {
	name   string
	cells  []string
	stops  string // layers, each of which is enough
	needed string // layer without which it works
}

// judge holds the results against what must be.
func judge(t *testing.T, all places, notes string, stops layers) (rows []row) {
	holes := gaps(notes)
	for _, name := range attempt.Names() {
		r := row{name: name}
		worked := false
		for _, place := range []string{outside, outsideAsRoot, full, rootless} {
			o, there := all[place]
			if !there {
				continue
			}
			res, ok := o[name]
			in := place == full || place == rootless
			why := holes[name][place]
			switch {
			case !ok && name == "kill all" && place == outsideAsRoot:
				r.cells = append(r.cells, "not tried")
				continue
			case !ok:
				t.Errorf("%s: no result %s", name, place)
			case in && res.Succeeded && why == "":
				t.Errorf("HOLE: %s works %s: %s", name, place, res.Detail)
			case in && !res.Succeeded && why != "":
				t.Errorf("%s is stopped now %s: take it off the list of gaps", name, place)
			}
			worked = worked || !in && res.Succeeded
			r.cells = append(r.cells, cell(res, in))
		}
		if reason := absent()[name]; !worked && reason == "" {
			t.Errorf("%s: the control outside does not work, so the attempt shows nothing: %v %v", name, all[outside][name], all[outsideAsRoot][name])
		} else if !worked {
			r.stops = "not here: " + reason
		}
		if root() && worked {
			r.explain(t, stops, holes[name][full] != "")
		}
		rows = append(rows, r)
	}
	return rows
}

func cell(r attempt.Result, in bool) string {
	switch {
	case r.Succeeded && in:
		return "**works**"
	case r.Succeeded:
		return "works"
	case r.Errno != "":
		return r.Errno
	}
	return "no result"
}

// explain names the layers, and fails where there is no answer to what would
// happen without one of them.
func (r *row) explain(t *testing.T, l layers, gap bool) {
	if s := elsewhere(r.name); s != nil {
		r.stops = strings.Join(s, ", ")
		return
	}
	if gap {
		r.stops = "nothing"
		return
	}
	if !l.open[r.name] {
		t.Errorf("%s: does not work with every layer taken away, so nothing is known of them", r.name)
	}
	alone, needed := l.alone[r.name], l.needed[r.name]
	if len(alone) < 2 {
		for _, p := range l.pairs[r.name] { // what adds to the one
			if len(alone) == 0 || !slices.ContainsFunc(together(), func(c struct {
				name   string
				layers []string
			}) bool {
				return c.name == p && slices.Contains(c.layers, alone[0])
			}) {
				alone = append(alone, p)
			}
		}
	}
	r.stops, r.needed = strings.Join(alone, ", "), strings.Join(needed, ", ")
	if len(needed) == 0 && len(alone) < 2 {
		t.Errorf("%s: without its layer %q it still fails, and no second layer stops it alone", r.name, r.stops)
	}
}
