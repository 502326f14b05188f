package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The lexer follows cedar-go's scanner rune by rune, but keeps comments, so that
// Fmt can, and runs before cedar-go's recursive parser, so that its input is
// bounded. FuzzCompile holds the two against each other.

type tokenKind uint8

const (
	tokWord    tokenKind = iota // identifier or keyword
	tokInt                      // digits
	tokString                   // with its quotes
	tokOp                       // operator or bracket
	tokUnknown                  // a rune that starts no token
	tokComment                  // with its marks
)

type token struct {
	kind      tokenKind
	text      string
	off       int
	line, col int  // from 1; col counts characters
	own       bool // first on its line
	blank     bool // at least one empty line before it
}

type lexError struct {
	line, col int
	msg       string
}

func (e *lexError) Error() string { return fmt.Sprintf("%d:%d: %s", e.line, e.col, e.msg) }

type lexer struct {
	src       string
	pos       int
	line, col int
}

// lex splits src into tokens and comments. It stops at the first byte that no
// token can contain.
func lex(src string) ([]token, *lexError) {
	l := &lexer{src: src, line: 1, col: 1}
	var out []token
	lastLine, first := 0, true
	for {
		l.space()
		if l.pos >= len(src) {
			return out, nil
		}
		t := token{off: l.pos, line: l.line, col: l.col}
		t.own = first || t.line > lastLine
		t.blank = !first && t.line > lastLine+1
		kind, err := l.scan()
		if err != nil {
			return out, err
		}
		t.kind, t.text = kind, src[t.off:l.pos]
		if t.kind == tokComment {
			t.text = strings.TrimRight(t.text, " \t\r")
		}
		out = append(out, t)
		lastLine, first = l.line, false
	}
}

func (l *lexer) space() {
	for l.pos < len(l.src) && strings.IndexByte(" \t\r\n", l.src[l.pos]) >= 0 {
		l.step()
	}
}

// step consumes one rune; -1 at the end or for bytes that are no text.
func (l *lexer) step() rune {
	if l.pos >= len(l.src) {
		return -1
	}
	r, n := utf8.DecodeRuneInString(l.src[l.pos:])
	if r == 0 || r == utf8.RuneError && n == 1 {
		return -1
	}
	l.pos += n
	l.col++
	if r == '\n' {
		l.line, l.col = l.line+1, 1
	}
	return r
}

func (l *lexer) errorf(format string, a ...any) *lexError {
	return &lexError{line: l.line, col: l.col, msg: fmt.Sprintf(format, a...)}
}

func (l *lexer) scan() (tokenKind, *lexError) {
	c := l.src[l.pos]
	switch {
	case wordByte(c) && !digit(c):
		for l.pos < len(l.src) && wordByte(l.src[l.pos]) {
			l.step()
		}
		return tokWord, nil
	case digit(c):
		for l.pos < len(l.src) && digit(l.src[l.pos]) {
			l.step()
		}
		return tokInt, nil
	case c == '"':
		return tokString, l.str()
	case strings.HasPrefix(l.src[l.pos:], "//"):
		for l.pos < len(l.src) && l.src[l.pos] != '\n' {
			if l.step() < 0 {
				return tokComment, l.errorf("invalid character in comment")
			}
		}
		return tokComment, nil
	case strings.HasPrefix(l.src[l.pos:], "/*"):
		return tokComment, l.block()
	}
	return l.operator()
}

func (l *lexer) str() *lexError {
	start := *l
	l.step()
	for {
		switch r := l.step(); r {
		case '"':
			return nil
		case '\\':
			// What the escape means is the parser's business: here only a
			// quote must not end the string.
			if r = l.step(); r >= 0 && r != '\n' {
				continue
			}
			fallthrough
		case -1, '\n':
			if l.pos < len(l.src) && r == -1 {
				return l.errorf("invalid character in string")
			}
			return start.errorf("string is not closed on its line")
		}
	}
}

func (l *lexer) block() *lexError {
	start := *l
	l.step()
	l.step()
	for !strings.HasPrefix(l.src[l.pos:], "*/") {
		if l.step() < 0 {
			if l.pos < len(l.src) {
				return l.errorf("invalid character in comment")
			}
			return start.errorf("comment is not closed")
		}
	}
	l.step()
	l.step()
	return nil
}

func (l *lexer) operator() (tokenKind, *lexError) {
	two := ""
	if len(l.src)-l.pos >= 2 {
		two = l.src[l.pos : l.pos+2]
	}
	switch two {
	case "::", "!=", "<=", ">=", "==", "||", "&&":
		l.step()
		l.step()
		return tokOp, nil
	}
	if strings.IndexByte("@.,;(){}[]+-*:!<>", l.src[l.pos]) >= 0 {
		l.step()
		return tokOp, nil
	}
	if l.step() < 0 {
		return tokUnknown, l.errorf("invalid character")
	}
	return tokUnknown, nil
}

func wordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digit(c)
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
