package agent

import (
	"fmt"
	"strings"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/lib/termsafe"
)

// live adds one moving line under the permanent ones: what is running now, for
// how long, and the end of what the model is saying.
type live struct {
	plain
	shown bool // the moving line is on the screen
	frame int
	since time.Time
	said  string // last text of the model
	over  bool
}

const clearLine = "\r\x1b[2K"

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

func (v *live) event(ev *agentosv1.RunEvent) error {
	v.plain.erase = v.wipe
	if t := ev.GetText(); t != nil {
		v.said += t.GetText()
		if len(v.said) > 4096 {
			v.said = strings.ToValidUTF8(v.said[len(v.said)-2048:], "")
		}
		return nil // shown by the next tick
	}
	if ev.GetProposed() != nil {
		v.since, v.said = time.Time{}, ""
	}
	if ev.GetEnded() != nil {
		v.over = true
	}
	return v.plain.event(ev)
}

func (v *live) wipe() {
	if v.shown {
		v.env.Printf("%s", clearLine)
		v.shown = false
	}
}

func (v *live) tick(now time.Time) {
	if v.over {
		return
	}
	if v.since.IsZero() {
		v.since = now
	}
	v.frame++
	v.env.Printf("%s%s", clearLine, v.moving(now))
	v.shown = true
}

// moving is the text of the moving line, never wider than the terminal.
func (v *live) moving(now time.Time) string {
	names := make([]string, 0, len(v.open))
	for _, c := range v.open {
		n := c.name
		if c.action == "model.generate" {
			n = "model " + n
		}
		names = append(names, n)
	}
	what := "working"
	if len(names) > 0 {
		what = strings.Join(names, ", ")
	}
	text := fmt.Sprintf("%s %.1f s", what, now.Sub(v.since).Seconds())
	if said := strings.TrimSpace(v.said); said != "" {
		text += "  " + lastLine(said)
	}
	return v.env.Style.Name(string(spinner[v.frame%len(spinner)])) + " " + v.env.Style.Dim(termsafe.Cut(termsafe.Line(text), v.env.Width-3))
}

func lastLine(s string) string {
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		return s[i+1:]
	}
	return s
}

func (v *live) done() { v.wipe() }
