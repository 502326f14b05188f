package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Thresholds, as docs/spec/rules.md lists them.
const (
	pressureNotable = 10.0 // percent of time, PSI "some", 10 s average
	memoryLow       = 0.10 // share of memory that is available
	swapHigh        = 0.50 // share of swap that is used
	diskFull        = 0.90 // share of blocks or inodes that is used
	processHot      = 80.0 // percent of one CPU
	loadHigh        = 1.0  // load for each CPU
)

func reportInspect(r *report, _ slots) {
	d, ok := r.data(systemInspect)
	if !ok {
		return
	}
	r.unavailable(d)
	osName := d.str("os", "pretty_name")
	if osName == "" {
		osName = d.str("os", "name")
	}
	r.headline = fmt.Sprintf("This machine: %s; kernel %s %s on %s; %s.", or(osName), or(d.str("kernel", "name")),
		or(d.str("kernel", "release")), or(d.str("kernel", "machine")), upText(d))
	found := causes(d)
	if len(found) == 0 {
		r.find("Nothing that was measured is out of the ordinary.")
	}
	for _, c := range found {
		r.find("Attention: %s", c.text)
	}
	r.find("%s", memoryText(d))
	r.find("%s", swapText(d))
	r.find("%s", loadText(d))
	r.find("%s", pressureText(d))
	r.filesystems(d, false)
	r.hottest(d, 3)
}

func reportSlow(r *report, _ slots) {
	d, ok := r.data(systemInspect)
	if !ok {
		return
	}
	r.unavailable(d)
	found := causes(d)
	if len(found) == 0 {
		r.headline = "Nothing that was measured explains slowness right now."
		r.advise("if it comes and goes, ask again while it is slow: load and pressure look back at most 15 minutes")
	} else {
		r.headline = fmt.Sprintf("%d likely cause(s), the strongest first.", len(found))
	}
	for i, c := range found {
		r.find("%d. %s", i+1, c.text)
		r.advise("%s", c.next)
	}
	r.find("%s", loadText(d))
	r.find("%s", pressureText(d))
	r.find("%s", memoryText(d))
	r.find("%s", swapText(d))
	r.hottest(d, 5)
	if _, ok := d.num("uptime", "seconds"); ok {
		r.find("The machine is %s.", upText(d))
	}
}

func reportDisk(r *report, _ slots) {
	d, ok := r.data(systemInspect)
	if !ok {
		return
	}
	r.unavailable(d)
	if !d.get("filesystems").isObject() {
		r.headline = "Filesystems are not reported."
		return
	}
	full := 0
	for _, c := range causes(d) {
		if c.disk {
			full++
			r.find("Attention: %s", c.text)
			r.advise("%s", c.next)
		}
	}
	switch {
	case full > 0:
		r.headline = fmt.Sprintf("%d filesystem(s) nearly full.", full)
	case len(d.list("filesystems", "mounts")) == 0:
		r.headline = "No local filesystem is reported."
	default:
		r.headline = fmt.Sprintf("No local filesystem is nearly full (limit %.0f %%).", diskFull*100)
	}
	r.filesystems(d, true)
}

// cause is one thing that is out of the ordinary; weight orders them.
type cause struct {
	weight     float64
	text, next string
	disk       bool
}

// causes ranks what is out of the ordinary in a system_inspect document.
func causes(d value) []cause {
	var list []cause
	add := func(weight float64, next, format string, args ...any) {
		list = append(list, cause{weight: weight, next: next, text: fmt.Sprintf(format, args...)})
	}
	hot := hotText(d)
	for _, p := range []struct{ key, what, next string }{
		{"memory", "waited for memory", "find what uses memory (hottest processes below) and stop or limit it"},
		{"io", "waited for storage", "find what reads and writes (iotop, pidstat -d) and whether a disk is failing (journal of the kernel)"},
		{"cpu", "waited for a CPU", "lower the priority of, or stop, the processes that use the CPUs"},
	} {
		some, ok := d.num("pressure", p.key, "some", "avg10")
		if !ok || some < pressureNotable {
			continue
		}
		text := fmt.Sprintf("In %.0f %% of the last 10 s some task %s", some, p.what)
		if m, ok := d.num("pressure", p.key, "some", "avg60"); ok {
			text += fmt.Sprintf(" (%.0f %% of the last minute)", m)
		}
		full, _ := d.num("pressure", p.key, "full", "avg10")
		if full >= 1 {
			text += fmt.Sprintf(", in %.0f %% all of them", full)
		}
		if p.key == "cpu" {
			text += busiest(d)
		}
		// Time in which everything stood still weighs double.
		add(some+full, p.next, "%s.", text)
	}
	memoryCauses(d, add)
	if l, ok := loadPerCPU(d); ok && l >= loadHigh {
		add(min(20*l, 80), "see which processes are runnable or wait for storage", "The load is %.1f for each CPU.", l)
	}
	for _, m := range d.list("filesystems", "mounts") {
		list = append(list, diskCauses(m)...)
	}
	if hot != "" {
		add(15, "see whether that process should be doing this", "%s keeps a CPU busy.", hot)
	}
	slices.SortStableFunc(list, func(a, b cause) int { return cmp.Compare(b.weight, a.weight) })
	return list[:min(len(list), 8)]
}

func memoryCauses(d value, add func(float64, string, string, ...any)) {
	total, ok1 := d.num("memory", "total")
	avail, ok2 := d.num("memory", "available")
	if ok1 && ok2 && total > 0 && avail/total < memoryLow {
		add(100-400*avail/total, "stop or limit what uses most memory", "Only %s of %s memory is available.", bytesText(avail), bytesText(total))
	}
	st, ok1 := d.num("memory", "swap_total")
	sf, ok2 := d.num("memory", "swap_free")
	if ok1 && ok2 && st > 0 && (st-sf)/st > swapHigh {
		add(35, "find what was swapped out; more memory or less work helps", "%s of %s swap is used.", bytesText(max(st-sf, 0)), bytesText(st))
	}
}

// diskCauses reports a full filesystem. One mounted read-only, such as an image,
// is always full and does no harm.
func diskCauses(m value) []cause {
	if m.yes("read_only") {
		return nil
	}
	var list []cause
	name := or(m.str("mount"))
	if f, ok := fullness(m); ok && f >= diskFull {
		avail, _ := m.num("available")
		list = append(list, cause{40 + 40*(f-diskFull)/(1-diskFull),
			fmt.Sprintf("%s is %.0f %% full, %s available.", name, f*100, bytesText(avail)),
			"free space on " + name + " (du -xh --max-depth=1 " + name + ")", true})
	}
	inodes, ok1 := m.num("inodes")
	free, ok2 := m.num("inodes_free")
	if ok1 && ok2 && inodes > 0 && 1-free/inodes >= diskFull {
		list = append(list, cause{45, fmt.Sprintf("%s has %.0f %% of its inodes used.", name, 100*(1-free/inodes)),
			"remove small files on " + name, true})
	}
	return list
}

// fullness is what df shows: used over what an ordinary user could use.
func fullness(m value) (float64, bool) {
	used, ok1 := m.num("used")
	avail, ok2 := m.num("available")
	if !ok1 || !ok2 || used+avail <= 0 {
		return 0, false
	}
	return used / (used + avail), true
}

func loadPerCPU(d value) (float64, bool) {
	l, ok1 := d.num("load", "load1")
	n, ok2 := d.num("load", "cpus")
	if !ok1 || !ok2 || n < 1 {
		return 0, false
	}
	return l / n, true
}

func hotText(d value) string {
	for _, p := range first(d.list("processes", "hottest"), 1) {
		if c, ok := p.num("cpu_percent"); ok && c >= processHot {
			return processText(p)
		}
	}
	return ""
}

// busiest names the processes that use a quarter of a CPU or more, three at most.
func busiest(d value) string {
	var names []string
	for _, p := range first(d.list("processes", "hottest"), 3) {
		if c, ok := p.num("cpu_percent"); ok && c >= 25 {
			names = append(names, processText(p))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; busiest: " + strings.Join(names, "; ")
}

func processText(p value) string {
	pid, _ := p.num("pid")
	s := fmt.Sprintf("%s (pid %.0f", or(p.str("comm")), pid)
	if uid, ok := p.num("uid"); ok {
		s += fmt.Sprintf(", uid %.0f", uid)
	}
	s += ")"
	if c, ok := p.num("cpu_percent"); ok {
		s += fmt.Sprintf(" %.0f %% of one CPU", c)
	}
	if m, ok := p.num("rss"); ok {
		s += ", " + bytesText(m)
	}
	return s
}

func (r *report) unavailable(d value) {
	for _, u := range d.list("unavailable") {
		r.unseen = append(r.unseen, fmt.Sprintf("%s: %s", or(u.str("section")), or(u.str("reason"))))
	}
}

func (r *report) hottest(d value, n int) {
	p := d.get("processes")
	if !p.isObject() {
		r.find("Hottest processes: not reported.")
		return
	}
	var names []string
	for _, h := range first(p.list("hottest"), n) {
		names = append(names, processText(h))
	}
	seen, _ := p.num("seen")
	ms, _ := p.num("interval_ms")
	r.find("Hottest of %.0f visible processes over %.0f ms: %s.", seen, ms, or(strings.Join(names, "; ")))
}

func (r *report) filesystems(d value, all bool) {
	fs := d.get("filesystems")
	if !fs.isObject() {
		r.find("Filesystems: not reported.")
		return
	}
	mounts := fs.list("mounts")
	if !all { // images and the like: full by design
		mounts = slices.DeleteFunc(mounts, func(m value) bool { return m.yes("read_only") })
	}
	slices.SortStableFunc(mounts, func(a, b value) int {
		fa, _ := fullness(a)
		fb, _ := fullness(b)
		return cmp.Compare(fb, fa)
	})
	n := 4
	if all {
		n = 20
	}
	for _, m := range first(mounts, n) {
		r.find("%s", mountText(m))
	}
	more(r, len(mounts), n, "filesystems, less full")
	if u, ok := fs.num("unanswered"); ok && u > 0 {
		r.unseen = append(r.unseen, fmt.Sprintf("%.0f local filesystem(s) did not answer in time", u))
	}
	if s, ok := fs.num("skipped"); ok && s > 0 && all {
		r.unseen = append(r.unseen, fmt.Sprintf("%.0f mounts that are no local storage (kernel, network, user space) or duplicates", s))
	}
}

func mountText(m value) string {
	f, ok := fullness(m)
	if !ok {
		return fmt.Sprintf("Disk %s: sizes not reported.", or(m.str("mount")))
	}
	used, _ := m.num("used")
	avail, _ := m.num("available")
	s := fmt.Sprintf("Disk %s (%s): %.0f %% used, %s used, %s available", or(m.str("mount")), or(m.str("type")), f*100, bytesText(used), bytesText(avail))
	if m.yes("read_only") {
		s += ", read-only"
	}
	return s + "."
}

func upText(d value) string {
	if s, ok := d.num("uptime", "seconds"); ok {
		return "up " + durationText(s)
	}
	return "uptime not reported"
}

func memoryText(d value) string {
	total, ok1 := d.num("memory", "total")
	avail, ok2 := d.num("memory", "available")
	if !ok1 || !ok2 || total <= 0 {
		return "Memory: not reported."
	}
	s := fmt.Sprintf("Memory: %s of %s in use (%.0f %%), %s available", bytesText(max(total-avail, 0)), bytesText(total),
		100*max(total-avail, 0)/total, bytesText(avail))
	if p, ok := d.num("pressure", "memory", "some", "avg60"); ok && p < 1 {
		s += "; no pressure"
	}
	return s + "."
}

func swapText(d value) string {
	total, ok1 := d.num("memory", "swap_total")
	free, ok2 := d.num("memory", "swap_free")
	switch {
	case !ok1 || !ok2:
		return "Swap: not reported."
	case total == 0:
		return "Swap: none."
	default:
		return fmt.Sprintf("Swap: %s of %s in use.", bytesText(max(total-free, 0)), bytesText(total))
	}
}

func loadText(d value) string {
	l1, ok := d.num("load", "load1")
	if !ok {
		return "Load: not reported."
	}
	l5, _ := d.num("load", "load5")
	l15, _ := d.num("load", "load15")
	s := fmt.Sprintf("Load: %.2f, %.2f, %.2f over 1, 5, 15 minutes", l1, l5, l15)
	if n, ok := d.num("load", "cpus"); ok {
		s += fmt.Sprintf(" on %.0f CPUs", n)
	}
	return s + "."
}

func pressureText(d value) string {
	var parts []string
	for _, k := range []string{"cpu", "memory", "io"} {
		if p, ok := d.num("pressure", k, "some", "avg60"); ok {
			parts = append(parts, fmt.Sprintf("%s %.1f %%", k, p))
		}
	}
	if len(parts) == 0 {
		return "Pressure: not reported."
	}
	return "Pressure (share of the last minute in which some task waited): " + strings.Join(parts, ", ") + "."
}
