package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes untrusted text fit for one line of an error or a report: control
// and format characters (terminal escapes, bidi overrides, newlines) become one
// space, invalid UTF-8 becomes U+FFFD, and the result has at most limit bytes,
// cut at a character and marked with "…" when it was longer.
func Clean(s string, limit int) string {
	const mark = "…"
	cut := len(s) > 4*limit+64 // never walk megabytes to print a line
	if cut {
		s = s[:4*limit+64]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= limit && !cut {
		return s
	}
	end := min(len(s), limit-len(mark))
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimSpace(s[:max(end, 0)]) + mark
}
