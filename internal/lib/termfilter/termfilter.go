// Package termfilter stands between what a sandboxed program writes and a
// person's terminal. It passes what full-screen programs need and drops what
// types into the person's shell, speaks for somebody else, or reaches beyond the
// screen. docs/spec/terminal.md has every decision with its reason; in short:
//
//	text         valid UTF-8 without C1; other bytes become U+FFFD
//	C0           BEL BS HT LF VT FF CR SO SI; others dropped (ENQ answers)
//	ESC          7 8 = > D E M, #8, ( and ) with B 0 A; c as a soft reset
//	CSI          cursor, erase, insert, delete, scroll, margins, SGR, cursor
//	             style, soft reset, key modes; private modes from a list
//	questions    DA, DSR, CPR, DECRQM, XTVERSION, kitty ?u: only with Queries,
//	             since the answer is typed into whatever reads the terminal
//	OSC          0 1 2 as a marked title; 8 with http and https; none else
//	dropped      window operations, media copy, checksums of the screen, DCS
//	             (tmux passthrough, DECRQSS, sixel), APC, PM, SOS, ESC k
//
// State owned: the parser's state, the modes that were changed, at most 4 KiB of
// an unfinished sequence. Imports: none. Imported by: cli/run. Portable. Locks:
// none, one goroutine. Invariants: output is a concatenation of text, listed C0
// and whole listed sequences, rebuilt from their parts, however the input is cut;
// the same input gives the same output however it is cut; a sequence that never
// ends is given up after a bounded number of bytes; after End nothing that was
// switched on stays on.
// Tests: termfilter_test.go, FuzzFilter. Spec: OSA-02, AOS-19.
package termfilter

import (
	"strings"
	"unicode/utf8"
)

// Limits in bytes.
const (
	maxSequence = 4 << 10 // of what may be passed on
	maxString   = 1 << 20 // of what is dropped, before the parser gives up on its end
	maxTitle    = 200
)

// Config of a filter.
type Config struct {
	// Name is shown before every title, as "[agentos Name] ".
	Name string
	// Queries lets the program ask the terminal: only where the terminal's input
	// goes to the program.
	Queries bool
}

// Filter is one stream. Not safe for concurrent use.
type Filter struct {
	prefix  string
	queries bool
	asked   bool

	state state
	runes []byte // an unfinished UTF-8 sequence
	seq   []byte // parameters of a sequence, or content of a string
	kind  byte   // of a string: ']' is kept, others are dropped
	inter byte   // intermediate of ESC or CSI; 1: more than one
	size  int    // bytes of the sequence so far

	modes modes
}

type state uint8

const (
	ground state = iota
	escape
	escapeInter // ESC and an intermediate
	csiParam
	csiInter
	csiIgnore
	str       // in a string
	strEscape // ESC in a string
)

// New makes a filter. Name is reduced to printable text.
func New(c Config) *Filter {
	return &Filter{prefix: "[agentos " + clean(c.Name, 64) + "] ", queries: c.Queries}
}

// Asked reports whether the program asked the terminal something: an answer may
// still be on its way.
func (f *Filter) Asked() bool { return f.asked }

// Append appends to dst what may reach the terminal of p.
func (f *Filter) Append(dst, p []byte) []byte {
	for _, b := range p {
		dst = f.step(dst, b)
	}
	return dst
}

func (f *Filter) step(dst []byte, b byte) []byte {
	if f.state != ground {
		if f.size++; f.size > f.limit() {
			f.reset() // lost: read on as text
		}
	}
	switch f.state {
	case ground:
		return f.text(dst, b)
	case str, strEscape:
		return f.inString(dst, b)
	}
	switch {
	case b == 0x1b:
		f.begin()
		return dst
	case b == 0x18 || b == 0x1a: // CAN, SUB
		f.reset()
		return dst
	case b < 0x20 || b == 0x7f:
		return dst // has no business in here
	case b >= 0x80:
		f.reset()
		return f.text(dst, b)
	}
	switch f.state {
	case escape:
		return f.afterEscape(dst, b)
	case escapeInter:
		if b < 0x30 {
			f.inter = 1
			return dst
		}
		inter := f.inter
		f.reset()
		return f.designate(dst, inter, b)
	}
	return f.inCSI(dst, b)
}

func (f *Filter) limit() int {
	if f.state == str || f.state == strEscape {
		return maxString
	}
	return maxSequence
}

func (f *Filter) reset() {
	f.state, f.seq, f.inter, f.size = ground, f.seq[:0], 0, 0
}

func (f *Filter) begin() {
	f.reset()
	f.state, f.size = escape, 1
}

// text handles bytes outside of sequences.
func (f *Filter) text(dst []byte, b byte) []byte {
	if len(f.runes) > 0 {
		if f.runes = append(f.runes, b); b >= 0x80 && b < 0xc0 && !utf8.FullRune(f.runes) {
			return dst
		}
		r, n := utf8.DecodeRune(f.runes)
		whole := n == len(f.runes)
		f.runes = f.runes[:0]
		if whole && r != utf8.RuneError || whole && n == 3 {
			if r >= 0xa0 {
				dst = utf8.AppendRune(dst, r)
			}
			return dst
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		if b >= 0x80 && b < 0xc0 {
			return dst // it belonged to the broken one
		}
	}
	switch {
	case b >= 0x80:
		if b < 0xc2 || b > 0xf4 {
			return utf8.AppendRune(dst, utf8.RuneError)
		}
		f.runes = append(f.runes, b)
		return dst
	case b == 0x1b:
		f.begin()
		return dst
	case b >= 0x20 && b != 0x7f:
		return append(dst, b)
	case b >= 0x07 && b <= 0x0f:
		if b == 0x0e {
			f.modes.shifted = true
		}
		return append(dst, b)
	}
	return dst
}

func (f *Filter) afterEscape(dst []byte, b byte) []byte {
	switch {
	case b == '[':
		f.state = csiParam
	case strings.IndexByte("]PX^_k", b) >= 0:
		f.state, f.kind = str, b
	case b < 0x30:
		f.state, f.inter = escapeInter, b
	default:
		f.reset()
		return f.simple(dst, b)
	}
	return dst
}

// simple is ESC and one character.
func (f *Filter) simple(dst []byte, b byte) []byte {
	switch {
	case b == 'c':
		// A full reset would undo what the person set, such as tab stops and
		// colours: a soft one and a clear screen are what programs want of it.
		return append(dst, "\x1b[!p\x1b[H\x1b[2J"...)
	case b == '=':
		f.modes.keypad = true
	case b == '>':
		f.modes.keypad = false
	case strings.IndexByte("78DEM", b) < 0:
		return dst
	}
	return append(dst, 0x1b, b)
}

// designate is ESC, an intermediate and one character.
func (f *Filter) designate(dst []byte, inter, b byte) []byte {
	switch {
	case inter == '#' && b == '8':
	case (inter == '(' || inter == ')') && strings.IndexByte("B0A", b) >= 0:
		f.modes.charset = true
	default:
		return dst
	}
	return append(dst, 0x1b, inter, b)
}

func (f *Filter) inCSI(dst []byte, b byte) []byte {
	switch {
	case b >= 0x40:
		st, inter := f.state, f.inter
		if st != csiIgnore {
			dst = f.csi(dst, string(f.seq), inter, b)
		}
		f.reset()
	case f.state == csiIgnore:
	case b >= 0x30 && f.state == csiParam && len(f.seq) < 256:
		f.seq = append(f.seq, b)
	case b < 0x30 && f.state == csiParam:
		f.state, f.inter = csiInter, b
	default: // two intermediates, parameters after one, or too many
		f.state = csiIgnore
	}
	return dst
}

// inString collects an operating system command and skips every other string.
// ESC ends a string, whether or not it begins its terminator.
func (f *Filter) inString(dst []byte, b byte) []byte {
	if f.state == strEscape {
		if b == '\\' {
			return f.endString(dst)
		}
		f.begin()
		return f.step(dst, b)
	}
	switch {
	case b == 0x1b:
		f.state = strEscape
	case b == 0x18 || b == 0x1a:
		f.reset()
	case b == 0x07 && f.kind == ']':
		return f.endString(dst)
	case f.kind == ']' && len(f.seq) <= maxSequence:
		f.seq = append(f.seq, b)
	}
	return dst
}

func (f *Filter) endString(dst []byte) []byte {
	s, kind := string(f.seq), f.kind
	f.reset()
	if kind != ']' || len(s) > maxSequence {
		return dst
	}
	return f.osc(dst, s)
}

// clean is printable text of at most n bytes.
func clean(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > n {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
