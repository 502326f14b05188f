package termfilter

import (
	"strconv"
	"strings"
)

// plain are the control sequences without prefix and intermediate that take any
// numbers, none of which leaves a trace beyond the screen.
const plain = "@ABCDEFGHIJKLMPSXZ`abdefm"

// csi passes a control sequence on, or a part of it, rebuilt.
func (f *Filter) csi(dst []byte, params string, inter, final byte) []byte {
	prefix := byte(0)
	if params != "" && params[0] >= '<' {
		prefix, params = params[0], params[1:]
	}
	ps, ok := numbers(params, final == 'm' && prefix == 0)
	if !ok {
		return dst
	}
	allowed, question := false, false
	switch inter {
	case 0:
		switch prefix {
		case 0:
			allowed, question = f.ansi(final, ps)
		case '?':
			if final == 'h' || final == 'l' {
				return f.private(dst, ps, final)
			}
			question = final == 'u' && params == "" || final == 'n' && (params == "6" || params == "996")
		case '>':
			switch {
			case final == 'c' || final == 'q':
				question = params == "" || params == "0"
			case final == 'm':
				if allowed = len(ps) > 0 && len(ps) <= 2 && ps[0] == "4"; allowed {
					f.modes.otherKeys = len(ps) == 2
				}
			case final == 'u':
				allowed = len(ps) <= 1 && f.modes.pushKeys()
			}
		case '<':
			if final == 'u' && len(ps) <= 1 {
				return f.modes.popKeys(dst, ps)
			}
		case '=':
			if final == 'u' && len(ps) <= 2 {
				dst = f.modes.ownKeys(dst)
				allowed = true
			}
		}
	case ' ':
		allowed = prefix == 0 && final == 'q' && len(ps) <= 1
		f.modes.cursor = f.modes.cursor || allowed
	case '!':
		if allowed = prefix == 0 && final == 'p' && params == ""; allowed {
			f.modes.softReset()
		}
	case '$':
		question = (prefix == 0 || prefix == '?') && final == 'p' && len(ps) == 1
	}
	if question && f.queries {
		f.asked = true
		allowed = true
	}
	if !allowed {
		return dst
	}
	return control(dst, prefix, params, inter, final)
}

func control(dst []byte, prefix byte, params string, inter, final byte) []byte {
	dst = append(dst, 0x1b, '[')
	if prefix != 0 {
		dst = append(dst, prefix)
	}
	dst = append(dst, params...)
	if inter != 0 {
		dst = append(dst, inter)
	}
	return append(dst, final)
}

// ansi decides on sequences without prefix and intermediate.
func (f *Filter) ansi(final byte, ps []string) (allowed, question bool) {
	one := len(ps) == 1
	switch final {
	case 'T':
		return len(ps) <= 1, false // with five it tracks the mouse
	case 'r':
		f.modes.margins = true
		return len(ps) <= 2, false
	case 's', 'u':
		return len(ps) == 0, false // with numbers s sets left and right margins
	case 'h', 'l':
		if allowed = one && ps[0] == "4"; allowed {
			f.modes.insert = final == 'h'
		}
		return allowed, false
	case 'c':
		return false, len(ps) == 0 || one && ps[0] == "0"
	case 'n':
		return false, one && (ps[0] == "5" || ps[0] == "6")
	case 'J':
		return len(ps) == 0 || one && ps[0] != "3", false // 3 erases what scrolled away
	case 'm':
		f.modes.colour = true
	}
	return strings.IndexByte(plain, final) >= 0, false
}

// private passes the listed modes of a DECSET or DECRST.
func (f *Filter) private(dst []byte, ps []string, final byte) []byte {
	var keep []string
	for _, p := range ps {
		if f.modes.set(p, final == 'h') {
			keep = append(keep, p)
		}
	}
	if len(keep) == 0 {
		return dst
	}
	return control(dst, '?', strings.Join(keep, ";"), 0, final)
}

// numbers splits parameters. Numbers have at most five digits, and there are at
// most 32 of them; colons only where colours use them.
func numbers(params string, colons bool) ([]string, bool) {
	if params == "" {
		return nil, true
	}
	ps := strings.Split(params, ";")
	if len(ps) > 32 {
		return nil, false
	}
	for _, p := range ps {
		for n := range strings.SplitSeq(p, ":") {
			if len(n) > 5 || strings.Trim(n, "0123456789") != "" || n != p && !colons {
				return nil, false
			}
		}
	}
	return ps, true
}

// osc passes titles, marked, and links to the web.
func (f *Filter) osc(dst []byte, s string) []byte {
	num, rest, _ := strings.Cut(s, ";")
	switch num {
	case "0", "1", "2":
		if !f.modes.titled {
			f.modes.titled = true
			dst = append(dst, "\x1b[22;0t"...) // keeps the person's own
		}
		return append(append(append(dst, "\x1b]"+num+";"+f.prefix...), clean(rest, maxTitle)...), "\x1b\\"...)
	case "8":
		params, link, ok := strings.Cut(rest, ";")
		if !ok {
			return dst
		}
		id := ""
		for p := range strings.SplitSeq(params, ":") {
			if v, is := strings.CutPrefix(p, "id="); is && graphic(v) && len(v) <= 250 {
				id = "id=" + v
			}
		}
		if !web(link) {
			id, link = "", ""
		}
		f.modes.link = link != ""
		return append(dst, "\x1b]8;"+id+";"+link+"\x1b\\"...)
	}
	return dst
}

func web(link string) bool {
	lower := strings.ToLower(link[:min(len(link), 8)])
	return (strings.HasPrefix(lower, "https://") || strings.HasPrefix(lower, "http://")) && graphic(link) && len(link) <= 2048
}

// graphic reports whether s is ASCII without controls, spaces, and the
// separators of the sequence that it stands in.
func graphic(s string) bool {
	for i := range len(s) {
		if s[i] <= 0x20 || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
