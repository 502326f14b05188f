// Package termsafe makes text from an untrusted source harmless to look at: no
// escape sequence, no invisible or reordering character reaches a terminal.
// What is taken out is shown, so that a person sees that somebody tried.
//
// State owned: none. Imports: golang.org/x/text/width. Imported by: cli and its
// nouns, cmd/agentosd for what it logs. Invariants: the output of Text holds no
// control (Cc), format (Cf), surrogate, private or unassigned character besides
// \n and \t, and is valid UTF-8; Line holds neither \n nor \t; both are
// idempotent. Tests: termsafe_test.go, FuzzText.
package termsafe

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// maxMarks bounds combining marks on one character; more would paint over
// neighbouring lines.
const maxMarks = 6

// Text cleans s and keeps its lines and tabs.
func Text(s string) string {
	if plain(s) {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(s))
	marks := 0
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				marks = 0
				b.WriteRune(utf8.RuneError)
				continue
			}
		}
		if unicode.Is(unicode.M, r) {
			if marks++; marks <= maxMarks {
				b.WriteRune(r)
			}
			continue
		}
		marks = 0
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune(0x2400 + r) // control pictures
		case r == 0x7f:
			b.WriteRune('\u2421')
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}

// plain is the common case: printable ASCII and line ends.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 0x20 && c != '\n' && c != '\t') || c >= 0x7f {
			return false
		}
	}
	return true
}

// Line is Text on one line: line ends show as ⏎, tabs as a space.
func Line(s string) string {
	return strings.NewReplacer("\n", "⏎", "\t", " ").Replace(Text(s))
}

// JSON makes an encoded JSON document harmless without changing its value:
// every character that Text would replace is written as a \u escape. Such
// characters stand only inside strings there.
func JSON(doc []byte) []byte {
	if plain(string(doc)) {
		return doc
	}
	out := make([]byte, 0, len(doc))
	for _, r := range string(doc) {
		switch {
		case r == '\n' || r == '\t' || unicode.IsGraphic(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// Width is the number of terminal cells that clean text without line ends
// takes.
func Width(s string) (n int) {
	for _, r := range s {
		n += cells(r)
	}
	return n
}

func cells(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Cut shortens clean text to at most n cells, the last of which is … when
// something is missing. n below 1 gives nothing.
func Cut(s string, n int) string {
	if n < 1 {
		return ""
	}
	if Width(s) <= n {
		return s
	}
	return prefix(s, n-1) + "…"
}

// prefix is the longest beginning of s that takes at most n cells.
func prefix(s string, n int) string {
	used := 0
	for i, r := range s {
		if used += cells(r); used > n {
			return s[:i]
		}
	}
	return s
}

// Wrap breaks clean text into lines of at most n cells (n below 20 counts as
// 20) at spaces, and inside words that are longer than a line. The lines of s
// stay apart; leading spaces of a line are kept and repeated when it wraps, and
// the text of a "- " or "* " item hangs.
func Wrap(s string, n int) []string {
	n = max(n, 20)
	var out []string
	for line := range strings.SplitSeq(strings.ReplaceAll(s, "\t", "    "), "\n") {
		body := strings.TrimLeft(line, " ")
		indent := line[:len(line)-len(body)]
		if len(indent) > n/2 {
			indent = indent[:n/2]
		}
		hang := indent
		if strings.HasPrefix(body, "- ") || strings.HasPrefix(body, "* ") {
			hang += "  " // the text of a list item lines up
		}
		out = append(out, wrapLine(indent, hang, body, n-len(hang))...)
	}
	return out
}

func wrapLine(indent, hang, body string, n int) (out []string) {
	cur, used := "", 0
	flush := func() {
		out = append(out, strings.TrimRight(indent+cur, " "))
		cur, used, indent = "", 0, hang
	}
	for word := range strings.SplitSeq(body, " ") {
		w := Width(word)
		if cur != "" && used+1+w > n {
			flush()
		} else if cur != "" {
			cur, used = cur+" ", used+1
		}
		for w > n {
			head := prefix(word, n)
			cur, used = head, Width(head)
			flush()
			word = word[len(head):]
			w = Width(word)
		}
		cur, used = cur+word, used+w
	}
	flush()
	return out
}
