package rules

import (
	"fmt"
	"strings"
)

func reportService(r *report, s slots) {
	if d, ok := r.data(serviceInspect); ok {
		r.verdict(d, s.unit)
		r.serviceFacts(d)
	} else {
		r.headline = fmt.Sprintf("Whether %s is healthy is unknown: its state could not be read.", s.unit)
	}
	if d, ok := r.data(journalRead); ok {
		entries := d.list("entries")
		if len(entries) == 0 {
			r.find("No warnings or errors among its journal entries that could be read.")
		} else {
			r.find("%d journal entries of level warning or worse, the newest first:", len(entries))
		}
		r.entries(entries, 5)
		r.journalWarning(d)
	}
}

// journalWarning passes on what the reader of the journal complained about.
func (r *report) journalWarning(d value) {
	if w := d.str("warning"); w != "" {
		r.unseen = append(r.unseen, journalRead+": "+w)
	}
}

func (r *report) verdict(d value, unit string) {
	active, load, result := d.str("active_state"), d.str("load_state"), d.str("result")
	restarts, _ := d.num("restarts")
	switch {
	case load == "not-found":
		r.headline = fmt.Sprintf("There is no unit %s on this machine.", unit)
		r.advise("check the name (systemctl list-units --type=service), or whether its package is installed")
	case load == "masked":
		r.headline = fmt.Sprintf("%s is masked: it can't be started.", unit)
	case active == "failed":
		r.headline = fmt.Sprintf("%s has failed (result: %s).", unit, or(result))
		r.advise("read its log: ask for errors in the log of %s", unit)
	case active == "active" && result != "" && result != "success":
		r.headline = fmt.Sprintf("%s is active, but its last result was %s.", unit, result)
	case active == "active" && restarts > 0:
		r.headline = fmt.Sprintf("%s is active now, after %.0f automatic restart(s).", unit, restarts)
		r.advise("read its log: ask for errors in the log of %s", unit)
	case active == "active":
		r.headline = fmt.Sprintf("%s is active; systemd reports no problem.", unit)
	case active == "activating" || active == "deactivating" || active == "reloading":
		r.headline = fmt.Sprintf("%s is %s; that is a state between others.", unit, active)
	case active == "inactive":
		r.headline = fmt.Sprintf("%s is not running.", unit)
	default:
		r.headline = fmt.Sprintf("The state of %s: %s.", unit, or(active))
	}
}

func (r *report) serviceFacts(d value) {
	r.find("state %s (%s), loaded: %s, at boot: %s, last result: %s", or(d.str("active_state")), or(d.str("sub_state")),
		or(d.str("load_state")), or(d.str("unit_file_state")), or(d.str("result")))
	if s := d.str("description"); s != "" {
		r.find("described as %s", s)
	}
	if id := d.str("id"); id != "" && id != d.str("unit") {
		r.find("%s is another name of %s", d.str("unit"), id)
	}
	var facts []string
	add := func(key, format string, scale float64) {
		if n, ok := d.num(key); ok {
			facts = append(facts, fmt.Sprintf(format, n*scale))
		}
	}
	add("main_pid", "main process %.0f", 1)
	add("restarts", "%.0f restarts", 1)
	add("tasks_current", "%.0f tasks", 1)
	add("cpu_usage_ns", "%.1f s of CPU time", 1e-9)
	if m, ok := d.num("memory_current"); ok {
		facts = append(facts, bytesText(m)+" of memory")
	}
	if s := d.str("active_since"); s != "" && d.str("active_state") == "active" {
		facts = append(facts, "active since "+s)
	} else if s := d.str("inactive_since"); s != "" {
		facts = append(facts, "inactive since "+s)
	}
	if len(facts) > 0 {
		r.find("%s", strings.Join(facts, ", "))
	}
	if d.yes("need_daemon_reload") {
		r.find("Attention: its unit file changed since systemd read it")
		r.advise("systemctl daemon-reload makes systemd read the new unit file")
	}
}

func reportJournal(r *report, s slots) {
	d, ok := r.data(journalRead)
	if !ok {
		return
	}
	entries := d.list("entries")
	what := "entries"
	if s.priority != "" {
		what = "entries of level " + s.priority + " or worse"
	}
	span := ""
	if s.minutes > 0 {
		span = fmt.Sprintf(" of the last %s", durationText(float64(s.minutes)*60))
	}
	if len(entries) == 0 {
		r.headline = fmt.Sprintf("The journal has no %s of %s%s that could be read.", what, s.unit, span)
	} else {
		r.headline = fmt.Sprintf("The newest %d journal %s of %s%s.", len(entries), what, s.unit, span)
	}
	if c := countSevere(entries); c != "" {
		r.find("by level: %s", c)
	}
	r.entries(entries, 15)
	r.journalWarning(d)
	if n, ok := d.num("malformed"); ok && n > 0 {
		r.unseen = append(r.unseen, fmt.Sprintf("%.0f entries that could not be understood", n))
	}
}

var levels = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

func countSevere(entries []value) string {
	n := map[string]int{}
	for _, e := range entries {
		n[e.str("priority")]++
	}
	var parts []string
	for _, l := range levels {
		if n[l] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[l], l))
		}
	}
	return strings.Join(parts, ", ")
}

// entries lists the newest, with repetitions of a message counted instead.
func (r *report) entries(list []value, limit int) {
	times := map[string]int{}
	var order []value
	for _, e := range list {
		m := e.str("message")
		if times[m]++; times[m] == 1 {
			order = append(order, e)
		}
	}
	for _, e := range first(order, limit) {
		s := fmt.Sprintf("%s %s %s: %s", or(e.str("time")), or(e.str("priority")), or(e.str("identifier")), or(e.str("message")))
		if n := times[e.str("message")]; n > 1 {
			s += fmt.Sprintf(" (%d times)", n)
		}
		r.find("%s", s)
	}
	more(r, len(order), limit, "different messages")
}
