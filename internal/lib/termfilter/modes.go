package termfilter

import (
	"slices"
	"strconv"
	"strings"
)

// modes is what the program switched on and did not switch off.
type modes struct {
	private   []string // private modes that are not as terminals start
	alternate string   // the mode by which the other screen was entered
	keys      [2]int   // keyboard modes pushed, on the main and the other screen

	keypad, charset, shifted, insert, margins, colour bool
	cursor, otherKeys, titled, link                   bool
}

const maxKeys = 16 // pushed keyboard modes

// privateModes are the private modes that may be changed, with their value at
// the start of a terminal.
func privateModes() map[string]bool {
	return map[string]bool{
		"1":  false, // cursor keys
		"5":  false, // reverse video: the visible bell
		"6":  false, // origin
		"7":  true,  // wrap
		"12": false, // blinking cursor
		"25": true,  // cursor
		"66": false, // keypad
		// Mouse: clicks, motion, focus, how they are written.
		"9": false, "1000": false, "1002": false, "1003": false, "1004": false, "1005": false, "1006": false, "1015": false, "1016": false,
		// The other screen.
		"47": false, "1047": false, "1048": false, "1049": false,
		"2004": false, // bracketed paste
		"2026": false, // synchronized output
		"2027": false, // grapheme clusters
	}
}

// set notes a change and reports whether it may happen.
func (m *modes) set(mode string, on bool) bool {
	start, ok := privateModes()[mode]
	if !ok {
		return false
	}
	switch mode {
	case "47", "1047", "1049":
		m.alternate = ""
		if on {
			m.alternate = mode
		}
		return true
	case "1048": // saves and restores the cursor: nothing stays on
		return true
	}
	m.private = slices.DeleteFunc(m.private, func(x string) bool { return x == mode })
	if on != start {
		m.private = append(m.private, mode)
	}
	return true
}

// softReset is what DECSTR does to what is noted here.
func (m *modes) softReset() {
	m.keypad, m.insert, m.margins, m.colour = false, false, false, false
}

// screen is the index of the screen whose stack of keyboard modes is in use.
func (m *modes) screen() int {
	if m.alternate != "" {
		return 1
	}
	return 0
}

func (m *modes) pushKeys() bool {
	if m.keys[m.screen()] >= maxKeys {
		return false
	}
	m.keys[m.screen()]++
	return true
}

// popKeys lets the program pop only what it pushed: below lie the modes of who
// used the terminal before.
func (m *modes) popKeys(dst []byte, ps []string) []byte {
	n := 1
	if len(ps) == 1 && ps[0] != "" {
		n = max(atoi(ps[0]), 1)
	}
	n = min(n, m.keys[m.screen()])
	if n == 0 {
		return dst
	}
	m.keys[m.screen()] -= n
	return control(dst, '<', strconv.Itoa(n), 0, 'u')
}

// ownKeys makes sure that what the program sets is its own.
func (m *modes) ownKeys(dst []byte) []byte {
	if m.keys[m.screen()] > 0 {
		return dst
	}
	m.keys[m.screen()] = 1
	return control(dst, '>', "0", 0, 'u')
}

// End appends what makes the terminal the person's again: only what was changed
// is changed back. An unfinished sequence is forgotten. The filter can be used
// further.
func (f *Filter) End(dst []byte) []byte {
	m := &f.modes
	pop := func() {
		if n := m.keys[m.screen()]; n > 0 {
			dst = control(dst, '<', strconv.Itoa(n), 0, 'u')
		}
	}
	put := func(cond bool, s string) {
		if cond {
			dst = append(dst, s...)
		}
	}
	put(m.link, "\x1b]8;;\x1b\\")
	for _, on := range []bool{true, false} { // those that terminals start with come last
		var ps []string
		for _, p := range m.private {
			if privateModes()[p] != on {
				ps = append(ps, p)
			}
		}
		if len(ps) > 0 {
			final := byte('l')
			if !on {
				final = 'h'
			}
			dst = control(dst, '?', strings.Join(ps, ";"), 0, final)
		}
	}
	put(m.insert, "\x1b[4l")
	put(m.margins, "\x1b7\x1b[r\x1b8") // resetting margins moves the cursor
	pop()
	if m.alternate != "" {
		dst = control(dst, '?', m.alternate, 0, 'l')
		m.alternate = ""
		pop()
	}
	put(m.keypad, "\x1b>")
	put(m.charset, "\x1b(B\x1b)B")
	put(m.shifted, "\x0f")
	put(m.otherKeys, "\x1b[>4m")
	put(m.cursor, "\x1b[0 q")
	put(m.colour, "\x1b[0m")
	put(m.titled, "\x1b[23;0t")
	f.modes, f.runes = modes{}, f.runes[:0]
	f.reset()
	return dst
}
