//go:build linux

package linux

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text from the machine was often chosen by somebody else: a process names
// itself, a client logs what a remote sent. Control characters, escape
// sequences and the invisible characters that reorder text are replaced, so
// that what a person or a model sees is what is there.

// line makes one bounded line of s: at most limit bytes of valid UTF-8.
func line(s string, limit int) string {
	out, _ := clean(s, limit, false)
	return out
}

// clean replaces invalid UTF-8, control and formatting characters by U+FFFD
// (newline and tab survive when multi) and cuts to limit bytes at a rune
// boundary. It reports whether something was cut.
func clean(s string, limit int, multi bool) (string, bool) {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if !(multi && (r == '\n' || r == '\t')) && !visible(r) {
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			return b.String(), true
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String(), false
}

func visible(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Zl, r) && !unicode.Is(unicode.Zp, r)
}
