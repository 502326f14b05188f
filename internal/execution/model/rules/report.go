package rules

import (
	"fmt"
	"strings"
)

// report collects the parts of an answer.
type report struct {
	results  []outcome
	headline string
	findings []string
	unseen   []string
	next     []string
}

// write renders the intent's report and adds what could not be seen, what to do
// next and where each finding comes from.
func write(m match, results []outcome) string {
	r := &report{results: results}
	var sources []string
	for _, o := range results {
		if o.ok {
			s := o.step.tool + " (call " + o.callID + ")"
			if o.cut {
				s += ", shortened to its limit"
			}
			sources = append(sources, s)
			continue
		}
		r.unseen = append(r.unseen, o.step.tool+": "+o.why)
		if o.next != "" {
			r.next = append(r.next, o.next)
		}
	}
	m.intent.report(r, m.slots)
	if len(sources) == 0 {
		r.headline, r.findings = "Nothing could be read, so there is nothing to report about: "+m.intent.summary+".", nil
	}
	var b strings.Builder
	b.WriteString(r.headline + "\n")
	section(&b, "Findings", r.findings)
	section(&b, "Not seen", r.unseen)
	section(&b, "Next", r.next)
	section(&b, "Evidence", sources)
	return strings.TrimRight(b.String(), "\n")
}

func section(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	b.WriteString("\n" + title + ":\n")
	for _, l := range lines {
		b.WriteString("- " + l + "\n")
	}
}

func (r *report) find(format string, args ...any) {
	r.findings = append(r.findings, fmt.Sprintf(format, args...))
}

func (r *report) advise(format string, args ...any) {
	r.next = append(r.next, fmt.Sprintf(format, args...))
}

// data is the answer of a tool; the zero value when it didn't answer.
func (r *report) data(tool string) (value, bool) {
	for _, o := range r.results {
		if o.step.tool == tool && o.ok {
			return o.data, true
		}
	}
	return value{}, false
}

func reportAccelerators(r *report, _ slots) {
	d, ok := r.data(npuInspect)
	if !ok {
		return
	}
	n, counted := d.num("count")
	devices, nodes, libs := d.list("devices"), d.list("nodes"), d.list("libraries")
	switch {
	case !counted:
		r.headline = "The number of accelerators is not reported."
	case n == 0:
		r.headline = "No accelerator (NPU or GPU) was found on this machine."
	default:
		r.headline = fmt.Sprintf("%.0f accelerator(s) found on this machine.", n)
	}
	for _, v := range first(devices, 16) {
		driver := v.str("driver")
		if driver == "" {
			driver = "none bound"
		}
		r.find("device %s of class %s: vendor %s, device %s, driver %s",
			or(v.str("name")), or(v.str("class")), or(v.str("vendor")), or(v.str("device")), driver)
	}
	for _, v := range first(nodes, 16) {
		r.find("device node %s (%s)", or(v.str("path")), or(v.str("kind")))
	}
	for _, v := range first(libs, 16) {
		r.find("vendor library %s for %s: %s", or(v.str("name")), or(v.str("runtime")), or(v.str("path")))
	}
	for _, v := range first(d.list("modules"), 16) {
		r.find("kernel driver %s is loaded, version %s", or(v.str("name")), or(v.str("version")))
	}
	more(r, len(devices), 16, "devices")
	more(r, len(nodes), 16, "device nodes")
	more(r, len(libs), 16, "libraries")
	if n == 0 && len(devices)+len(nodes) == 0 && len(libs) > 0 {
		r.find("vendor libraries are installed, but there is no device for them")
	}
	if n == 0 && counted && len(libs)+len(d.list("modules")) == 0 {
		r.find("no device node, no kernel class device and no vendor library")
	}
}

func reportPackage(r *report, s slots) {
	d, ok := r.data(packageQuery)
	if !ok {
		return
	}
	managers := d.list("managers")
	var asked []string
	failed := false
	for _, v := range managers {
		asked = append(asked, or(v.str("name")))
		if v.str("state") == "failed" {
			failed = true
			r.unseen = append(r.unseen, fmt.Sprintf("the database of %s: %s", or(v.str("name")), or(v.str("reason"))))
		}
	}
	pkgs := d.list("packages")
	known := d.get("installed").v != nil
	switch {
	case len(managers) == 0:
		r.headline = fmt.Sprintf("Whether %s is installed is unknown: this machine has no package database that could be read.", s.pkg)
	case d.yes("installed"):
		r.headline = fmt.Sprintf("%s is installed.", s.pkg)
	case failed || !known:
		r.headline = fmt.Sprintf("Whether %s is installed is not certain.", s.pkg)
	default:
		r.headline = fmt.Sprintf("%s is not installed (asked: %s).", s.pkg, strings.Join(asked, ", "))
	}
	for _, v := range first(pkgs, 16) {
		r.find("%s %s, %s, %s (%s): %s", or(v.str("name")), or(v.str("version")), or(v.str("architecture")),
			or(v.str("status")), or(v.str("manager")), or(v.str("summary")))
	}
	more(r, len(pkgs), 16, "packages")
}

func first(list []value, n int) []value { return list[:min(len(list), n)] }

func more(r *report, have, shown int, what string) {
	if have > shown {
		r.find("and %d more %s", have-shown, what)
	}
}
