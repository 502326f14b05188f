package rules

import (
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json"

	"agentos/internal/lib/chat"
)

// outcome is what became of one planned call.
type outcome struct {
	step   step
	callID string
	data   value  // set when the tool answered
	ok     bool   // the tool answered
	cut    bool   // the result was truncated
	why    string // why there is no answer
	next   string
}

// gather finds the result of each planned step among the messages after the goal.
func gather(m match, req chat.Request, after []chat.Message) []outcome {
	var out []outcome
	for _, s := range m.steps() {
		o := outcome{step: s}
		for _, msg := range after {
			for _, c := range msg.ToolCalls {
				if c.Name == s.tool && c.Arguments == s.arguments {
					o.callID = c.ID
				}
			}
		}
		o.read(req, after)
		out = append(out, o)
	}
	return out
}

func (o *outcome) read(req chat.Request, after []chat.Message) {
	if o.callID == "" {
		o.why, o.next = "this tool was not offered", "allow it for this agent: agentos policy explain"
		for _, t := range req.Tools {
			if t.Name == o.step.tool {
				o.why, o.next = "no call was made", "ask again"
			}
		}
		return
	}
	o.why, o.next = "no result came back", "ask again"
	for _, msg := range after {
		if msg.Role == chat.ToolRole && msg.ToolCallID == o.callID {
			o.parse(msg.Text)
		}
	}
}

// parse takes a tool.Result document. Anything else is the reason why there is
// none: the gate's refusal, as text or as an object.
func (o *outcome) parse(text string) {
	var doc any
	if json.Unmarshal([]byte(text), &doc) != nil {
		// The gate's refusal has its next step on a line of its own.
		why, next, _ := strings.Cut(text, "\nnext: ")
		o.why, o.next = chat.Clean(why, 300), chat.Clean(next, 200)
		if o.why == "" {
			o.why = "the result was empty"
		}
		return
	}
	v := value{doc}
	if v.str("status") == "ok" && v.get("data").isObject() {
		o.ok, o.why, o.next = true, "", ""
		o.data = v.get("data")
		o.cut = len(v.get("truncated").list()) > 0
		return
	}
	o.why, o.next = reason(v), v.str("next")
	if o.next == "" {
		o.next = v.get("error").str("next")
	}
}

func reason(v value) string {
	var parts []string
	if s := v.str("status"); s != "" {
		parts = append(parts, s)
	}
	for _, s := range []string{v.str("error"), v.get("error").str("message"), v.get("error").str("msg"), v.str("message"), v.str("msg"), v.str("reason")} {
		if s != "" {
			parts = append(parts, s)
			break
		}
	}
	if len(parts) == 0 {
		return "the result has no status"
	}
	return strings.Join(parts, ": ")
}

// value is a piece of an untrusted JSON document. Every access is total: what is
// missing or of another type is the zero value.
type value struct{ v any }

func (v value) get(names ...string) value {
	for _, n := range names {
		m, _ := v.v.(map[string]any)
		v = value{m[n]}
	}
	return v
}

func (v value) isObject() bool { _, ok := v.v.(map[string]any); return ok }

// str is a member as clean text of at most 200 bytes.
func (v value) str(names ...string) string {
	s, _ := v.get(names...).v.(string)
	return chat.Clean(s, 200)
}

// num is a member that is a finite number, not negative.
func (v value) num(names ...string) (float64, bool) {
	f, ok := v.get(names...).v.(float64)
	if !ok || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false
	}
	return f, true
}

func (v value) yes(names ...string) bool { b, _ := v.get(names...).v.(bool); return b }

func (v value) list(names ...string) []value {
	a, _ := v.get(names...).v.([]any)
	var out []value
	for _, e := range a {
		out = append(out, value{e})
	}
	return out
}

// or is s, or the words for a missing value.
func or(s string) string {
	if s == "" {
		return "not reported"
	}
	return s
}

func bytesText(n float64) string {
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			if u == "B" {
				return fmt.Sprintf("%.0f B", n)
			}
			return fmt.Sprintf("%.1f %s", n, u)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.1f TiB", n)
}

func durationText(seconds float64) string {
	m := int64(math.Min(seconds, 1e12)) / 60
	d, h := m/1440, m/60%24
	switch {
	case d > 0:
		return fmt.Sprintf("%d d %d h", d, h)
	case h > 0:
		return fmt.Sprintf("%d h %d min", h, m%60)
	default:
		return fmt.Sprintf("%d min", m)
	}
}
