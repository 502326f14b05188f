package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// Fmt lays out a policy file in the one house form, comments included. It
// changes white space only: the result has the same tokens and comments in the
// same order, and Fmt of it is itself. It errors on input that doesn't parse,
// with Problems as far as they are known.
func Fmt(src Source) ([]byte, error) {
	c := &compiler{seen: map[string]Rule{}}
	if len(src.Text) > MaxFileBytes {
		c.add(Problem{File: src.Name, Message: fmt.Sprintf("file has %d bytes, limit %d", len(src.Text), MaxFileBytes)})
		return nil, c.problems
	}
	toks, lerr := lex(string(src.Text))
	if lerr != nil {
		c.add(Problem{File: src.Name, Line: lerr.line, Column: lerr.col, Message: lerr.msg})
		return nil, c.problems
	}
	stmts, ok := c.statements(src, code(toks))
	if !ok {
		return nil, c.problems
	}
	if _, err := cedar.NewPolicyListFromBytes(src.Name, src.Text); err != nil {
		for _, st := range stmts {
			last := st[len(st)-1]
			if _, err := cedar.NewPolicyListFromBytes(src.Name, src.Text[st[0].off:last.off+len(last.text)]); err != nil {
				line, col, msg := locate(err, st)
				c.add(Problem{File: src.Name, Line: line, Column: col, Message: msg})
			}
		}
		if len(c.problems) == 0 {
			c.add(Problem{File: src.Name, Message: err.Error()})
		}
		return nil, c.problems
	}
	var p printer
	for i, t := range toks {
		p.token(toks, i, t)
	}
	out := p.finish()
	if again, err := lex(out); err != nil || !slices.EqualFunc(toks, again, func(a, b token) bool { return a.kind == b.kind && a.text == b.text }) {
		return nil, fmt.Errorf("format %q: layout would change the policy", src.Name)
	}
	return []byte(out), nil
}

type part uint8

const (
	partHead  part = iota // annotations, effect, between conditions
	partScope             // the brackets after the effect
	partBody              // a condition
)

type topLevel uint8

const (
	topStart topLevel = iota
	topComment
	topPolicy
)

// printer lays out tokens one by one. A line break is pending until the next
// token, so that a comment behind a token stays on its line.
type printer struct {
	out     strings.Builder
	part    part
	depth   int // brackets inside the part
	inside  bool
	inline  bool // the scope fits on the effect's line
	top     topLevel
	breaks  int // pending line breaks
	started bool
	prev    token
	unary   bool // prev is a prefix minus
}

func (p *printer) finish() string {
	s := strings.TrimRight(p.out.String(), "\n")
	if s == "" {
		return ""
	}
	return s + "\n"
}

func (p *printer) brk(n int) { p.breaks = max(p.breaks, n) }

// write puts text after pending breaks, or after a space.
func (p *printer) write(text string, indent int, space bool) {
	switch {
	case !p.started:
	case p.breaks > 0:
		p.out.WriteString(strings.Repeat("\n", p.breaks))
		p.out.WriteString(strings.Repeat("    ", indent))
	case space:
		p.out.WriteByte(' ')
	}
	p.out.WriteString(text)
	p.breaks, p.started = 0, true
}

func (p *printer) indent() int {
	switch {
	case p.part == partHead:
		return 0
	case p.depth > 0:
		return 2
	}
	return 1
}

func (p *printer) comment(t token) {
	if t.own {
		p.brk(1)
		if !p.inside && (p.top == topPolicy || p.top == topComment && t.blank) {
			p.brk(2)
		}
		p.write(t.text, p.indent(), false)
		if !p.inside {
			p.top = topComment
		}
	} else {
		p.breaks = 0
		p.write(t.text, 0, true)
	}
	p.brk(1)
}

func (p *printer) token(toks []token, i int, t token) {
	if t.kind == tokComment {
		p.comment(t)
		return
	}
	if !p.inside && t.text != ";" {
		p.inside = true
		if p.top == topPolicy || p.top == topComment && t.blank {
			p.brk(2)
		}
		p.prev = token{}
	}
	switch p.part {
	case partHead:
		p.head(toks, i, t)
	case partScope:
		p.scope(t)
	case partBody:
		p.body(t)
	}
	p.unary = t.text == "-" && prefixAfter(p.prev)
	p.prev = t
}

func (p *printer) head(toks []token, i int, t token) {
	switch {
	case t.text == ";":
		p.write(t.text, 0, false)
		p.inside, p.top = false, topPolicy
		p.brk(1)
		return
	case t.text == "@", t.kind == tokWord && p.prev.text != "@":
		if p.prev.text != "" {
			p.brk(1)
		}
		p.write(t.text, 0, false)
	case t.text == "(" && (p.prev.text == "permit" || p.prev.text == "forbid") && !annotationName(toks, i):
		p.part, p.depth = partScope, 0
		p.inline = plainScope(toks[i:])
		p.write(t.text, 0, true)
		if !p.inline {
			p.brk(1)
		}
	case t.text == "{":
		p.write(t.text, 0, true)
		p.part, p.depth = partBody, 0
		p.brk(1)
	default:
		p.write(t.text, 0, false)
	}
}

// annotationName tells `@permit("…")` from `permit (`.
func annotationName(toks []token, i int) bool {
	var before []token
	for j := i - 1; j >= 0 && len(before) < 2; j-- {
		if toks[j].kind != tokComment {
			before = append(before, toks[j])
		}
	}
	return len(before) == 2 && before[1].text == "@"
}

// plainScope matches `(principal, action, resource)` without comments.
func plainScope(toks []token) bool {
	want := []string{"(", "principal", ",", "action", ",", "resource"}
	if len(toks) < len(want)+1 {
		return false
	}
	for i, w := range want {
		if toks[i].text != w {
			return false
		}
	}
	return toks[len(want)].text == ")"
}

func (p *printer) scope(t token) {
	switch {
	case t.text == ")" && p.depth == 0:
		if !p.inline {
			p.brk(1)
		}
		p.write(t.text, 0, false)
		p.part = partHead
	case t.text == "," && p.depth == 0 && !p.inline:
		p.write(t.text, 1, false)
		p.brk(1)
	default:
		p.nested(t)
	}
}

func (p *printer) body(t token) {
	switch {
	case t.text == "}" && p.depth == 0:
		p.brk(1)
		p.write(t.text, 0, false)
		p.part = partHead
	case (t.text == "&&" || t.text == "||") && p.depth == 0:
		p.write(t.text, 1, true)
		p.brk(1)
	default:
		p.nested(t)
	}
}

// nested writes a token of an expression and follows its brackets.
func (p *printer) nested(t token) {
	if t.text == ")" || t.text == "]" || t.text == "}" {
		p.depth--
	}
	p.write(t.text, p.indent(), p.spaced(t))
	if t.text == "(" || t.text == "[" || t.text == "{" {
		p.depth++
	}
}

// spaced reports whether a space stands before t, when it is on prev's line.
func (p *printer) spaced(t token) bool {
	switch p.prev.text {
	case "(", "[", "{", ".", "::", "!", "@":
		return false
	}
	if p.unary {
		return false
	}
	switch t.text {
	case ")", "]", "}", ",", ".", "::", ";", ":":
		return false
	case "(", "[":
		return !operand(p.prev)
	}
	return true
}

// operand reports whether t ends an operand, so that a bracket after it is a
// call or an index.
func operand(t token) bool {
	if t.kind == tokWord {
		return !keyword(t.text)
	}
	return t.kind == tokString || t.kind == tokInt || t.text == ")" || t.text == "]" || t.text == "}"
}

func keyword(s string) bool {
	return slices.Contains([]string{"if", "then", "else", "in", "like", "has", "is"}, s)
}

// prefixAfter reports whether a minus after t is a prefix.
func prefixAfter(t token) bool { return !operand(t) }
