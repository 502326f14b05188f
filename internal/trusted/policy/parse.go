package policy

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	publicast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// cedar-go's public AST wraps the x/exp one; these name both.
type (
	annotation = ast.AnnotationType
	policyAST  = publicast.Policy
)

// compiler collects policies and problems over the files of one Compile.
type compiler struct {
	check    *checker
	rules    []rule
	problems Problems
	seen     map[string]Rule // by policy ID
	order    map[string]int  // file name → position, for sorting problems
	full     bool            // MaxPolicies was reached and reported
}

// add keeps a problem; of more than MaxProblems, only that there are more.
func (c *compiler) add(p Problem) {
	switch n := len(c.problems); {
	case n > MaxProblems:
		return
	case n == MaxProblems:
		p = Problem{File: p.File, Line: p.Line, Column: p.Column, Message: fmt.Sprintf("more than %d problems: the rest is not shown", MaxProblems)}
	}
	if p.Severity == "" {
		p.Severity = Error
	}
	c.problems = append(c.problems, p)
}

func (c *compiler) sort() {
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(c.order[a.File], c.order[b.File]), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	c.problems = slices.Compact(c.problems)
}

// file parses one source and adds its policies and problems.
func (c *compiler) file(i int, f Source) {
	if c.order == nil {
		c.order = map[string]int{}
	}
	c.order[f.Name] = i
	if len(f.Text) > MaxFileBytes {
		c.add(Problem{File: f.Name, Message: fmt.Sprintf("file has %d bytes, limit %d", len(f.Text), MaxFileBytes)})
		return
	}
	toks, lerr := lex(string(f.Text))
	if lerr != nil {
		c.add(Problem{File: f.Name, Line: lerr.line, Column: lerr.col, Message: lerr.msg})
	}
	stmts, bounded := c.statements(f, code(toks))
	if !bounded {
		return
	}
	if lerr == nil {
		// cedar-go's own reading of the whole file is what counts; the split
		// into statements is only for finding more than the first mistake.
		list, err := cedar.NewPolicyListFromBytes(f.Name, f.Text)
		if err == nil && len(list) != len(stmts) {
			err = errors.New("policies can't be told apart")
		}
		if err == nil {
			for j, p := range list {
				c.policy(f, p, stmts[j])
			}
			return
		}
	}
	before := len(c.problems)
	for i, st := range stmts {
		if len(c.problems) > MaxProblems {
			return
		}
		if lerr != nil && i == len(stmts)-1 && st[len(st)-1].text != ";" {
			continue // cut off by what was reported already
		}
		c.statement(f, st)
	}
	if lerr == nil && len(c.problems) == before {
		c.add(Problem{File: f.Name, Message: "file does not parse as a whole, though each policy does"})
	}
}

// code drops comments.
func code(toks []token) []token {
	return slices.DeleteFunc(slices.Clone(toks), func(t token) bool { return t.kind == tokComment })
}

// statements splits tokens after each ";" and checks the limits of each part.
func (c *compiler) statements(f Source, toks []token) (out [][]token, ok bool) {
	ok = true
	start := 0
	for i, t := range toks {
		if t.text == ";" || i == len(toks)-1 {
			out = append(out, toks[start:i+1])
			start = i + 1
		}
	}
	for _, st := range out {
		msg := ""
		if len(st) > MaxPolicyTokens {
			msg = fmt.Sprintf("policy has %d tokens, limit %d", len(st), MaxPolicyTokens)
		} else if n := nesting(st); n > MaxNesting {
			msg = fmt.Sprintf("policy is nested %d deep, limit %d", n, MaxNesting)
		}
		if msg != "" {
			ok = false
			c.add(Problem{File: f.Name, Line: st[0].line, Column: st[0].col, Message: msg})
		}
	}
	return out, ok
}

// nesting is the depth of brackets and of if-expressions together; a run of
// prefix operators counts one level each.
func nesting(toks []token) int {
	depth, deepest, ifs, prefix := 0, 0, 0, 0
	for _, t := range toks {
		switch t.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case "if":
			ifs++
		}
		if t.text == "!" || t.text == "-" {
			prefix++
		} else {
			prefix = 0
		}
		deepest = max(deepest, depth+ifs+prefix)
	}
	return deepest
}

// statement parses one policy of a file that has a mistake somewhere.
func (c *compiler) statement(f Source, st []token) {
	last := st[len(st)-1]
	text := f.Text[st[0].off : last.off+len(last.text)]
	list, err := cedar.NewPolicyListFromBytes(f.Name, text)
	if err != nil {
		line, col, msg := locate(err, st)
		c.add(Problem{File: f.Name, Line: line, Column: col, Message: msg})
		return
	}
	for _, p := range list {
		c.policy(f, p, st)
	}
}

var parseErr = regexp.MustCompile(`^(?:parser error: )?(?:parse error at )?<input>:(\d+):(\d+)(?: ("(?:[^"\\]|\\.)*"))?: (.*)$`)

// locate turns cedar-go's message about a statement into a position in the
// file. cedar-go names the token after the one that it didn't expect.
func locate(err error, st []token) (line, col int, msg string) {
	first := st[0]
	m := parseErr.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if m == nil {
		return first.line, first.col, strings.TrimPrefix(err.Error(), "parser error: ")
	}
	l, _ := strconv.Atoi(m[1])
	k, _ := strconv.Atoi(m[2])
	line, col, msg = first.line+l-1, k, m[4]
	if l == 1 {
		col += first.col - 1
	}
	i := slices.IndexFunc(st, func(t token) bool { return t.line == line && t.col == col })
	switch {
	case i < 0: // the end of the statement
		i = len(st) - 1
	case i > 0 && !strings.HasPrefix(msg, "got "):
		i--
	}
	line, col = st[i].line, st[i].col
	msg = strings.TrimPrefix(msg, "exact ")
	if w, ok := strings.CutPrefix(msg, "got "); ok {
		if got, want, ok := strings.Cut(w, " want "); ok {
			msg = fmt.Sprintf("expected %q, found %q", want, got)
			if got == "" {
				msg = fmt.Sprintf("expected %q after this", want)
			}
		}
	}
	return line, col, msg
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)

// policy checks one parsed policy and keeps it.
func (c *compiler) policy(f Source, p *cedar.Policy, st []token) {
	first, last := st[0], st[len(st)-1]
	r := rule{policy: p, text: string(f.Text[first.off : last.off+len(last.text)])}
	r.File, r.Line, r.Effect = f.Name, first.line, "permit"
	if p.Effect() == cedar.Forbid {
		r.Effect = "forbid"
	}
	report := func(s Severity, t token, format string, a ...any) {
		c.add(Problem{File: f.Name, Line: t.line, Column: t.col, Policy: r.ID, Severity: s, Message: fmt.Sprintf(format, a...)})
	}
	c.annotations(&r, p, func(name, format string, a ...any) { report(Error, annotationToken(st, name), format, a...) })
	if r.Reason == "" {
		report(Warning, first, "policy has no @reason: decisions can't say why")
	}
	for _, m := range c.check.policy((*ast.Policy)(p.AST())) {
		report(m.severity, m.at(st), "%s", m.text)
	}
	if len(c.rules) >= MaxPolicies {
		if !c.full {
			report(Error, first, "too many policies: limit %d", MaxPolicies)
		}
		c.full = true
		return
	}
	c.rules = append(c.rules, r)
}

// annotations reads @id, @reason and the obligations. A name that means nothing
// is an error: a mistyped @approval would silently allow.
func (c *compiler) annotations(r *rule, p *cedar.Policy, fail func(name, format string, a ...any)) {
	values := p.Annotations()
	id, ok := values["id"]
	r.ID, r.id = string(id), cedar.PolicyID(id)
	r.Reason = string(values["reason"])
	switch prev, dup := c.seen[r.ID]; {
	case !ok:
		fail("", "policy has no @id")
	case !validID.MatchString(r.ID):
		fail("id", "@id %.140q is not a name: use letters, digits, \".\", \"_\", \"-\" and \"/\", up to 128", r.ID)
	case dup:
		fail("id", "@id %q is already used at %s:%d", r.ID, prev.File, prev.Line)
	default:
		c.seen[r.ID] = r.Rule
	}
	for _, a := range p.AST().Annotations {
		switch a.Key {
		case "id", "reason":
		case "approval":
			if a.Value != "owner" {
				fail("approval", "@approval %q is unknown: the only value is \"owner\"", string(a.Value))
			}
			if r.Effect == "forbid" {
				fail("approval", "@approval has no meaning on a forbid")
			}
			r.obligations = map[string]string{"approval": string(a.Value)}
		default:
			fail(string(a.Key), "annotation @%s is unknown: there are @id, @reason and @approval", a.Key)
		}
	}
}

// annotationToken finds @name in a statement; the first token when it isn't there.
func annotationToken(st []token, name string) token {
	for i := 1; i < len(st); i++ {
		if st[i-1].text == "@" && st[i].text == name {
			return st[i]
		}
	}
	return st[0]
}
