package profile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentos/internal/lib/fault"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Limits of one file.
const (
	MaxFile    = 32 << 10 // bytes
	maxEntries = 64       // of one list or map
	maxText    = 1024     // bytes of one value
	maxNest    = 16       // brackets within brackets, before the parser runs
)

// Parse reads one profile. file names it in errors, as FILE:LINE. Errors are
// faults of kind Usage and Limit; all that are found are joined.
func Parse(file string, data []byte) (Profile, error) {
	p := Profile{File: file, Text: string(data), Workspace: Read, Git: Read, Program: Refuse, Home: Persistent}
	if len(data) > MaxFile {
		return Profile{}, fault.New(fault.Limit, fmt.Sprintf("keep it below %d KiB", MaxFile>>10), "read profile %q: too large", file)
	}
	r := &reader{file: file}
	if !utf8.Valid(data) || deep(data) {
		return Profile{}, r.at(1, "write plain YAML", "the file is not UTF-8, or nests deeper than %d", maxNest)
	}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return Profile{}, r.syntax(err)
	}
	if len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		return Profile{}, r.at(1, "write one document of key: value lines", "the file holds no profile, or several")
	}
	r.mapping(tree.Docs[0].Body, "the profile", fields(&p))
	p.check(r)
	if len(r.probs) > 0 {
		return Profile{}, errors.Join(r.probs...)
	}
	return p, nil
}

// deep reports whether flow brackets nest too far for a recursive parser.
// Brackets in text count too: no profile comes near the limit.
func deep(data []byte) bool {
	open := 0
	for _, c := range data {
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		}
		if open > maxNest {
			return true
		}
	}
	return false
}

// field is one key: what stores its value.
type field struct {
	name  string
	store func(*reader, ast.Node)
}

// reader walks one file and collects its problems.
type reader struct {
	file  string
	probs []error
}

func (r *reader) at(line int, next, format string, args ...any) error {
	return fault.New(fault.Usage, next, "%s:%d: %s", r.file, line, fmt.Sprintf(format, args...))
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

func (r *reader) fail(n ast.Node, next, format string, args ...any) {
	r.probs = append(r.probs, r.at(lineOf(n), next, format, args...))
}

// syntax keeps the position of a YAML error and drops its picture of the file.
func (r *reader) syntax(err error) error {
	line, msg := 1, err.Error()
	var ye yaml.Error
	if errors.As(err, &ye) {
		msg = ye.GetMessage()
		if t := ye.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
	}
	msg, _, _ = strings.Cut(msg, "\n")
	return r.at(line, "fix the YAML there; agentos profile show generic is an example", "%q", clip(msg))
}

// mapping reads key: value lines, each key once and known.
func (r *reader) mapping(n ast.Node, what string, fs []field) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.fail(n, "write key: value lines", "%s is not a mapping", what)
		return
	}
	seen := map[string]bool{}
	for _, kv := range m.Values {
		key, ok := kv.Key.(*ast.StringNode)
		if !ok {
			r.fail(kv.Key, "write plain keys; anchors, merges and tags are not read", "a key is not plain text")
			continue
		}
		if seen[key.Value] {
			r.fail(key, "write it once", "key %q stands twice", clip(key.Value))
			continue
		}
		seen[key.Value] = true
		i := slices.IndexFunc(fs, func(f field) bool { return f.name == key.Value })
		if i < 0 {
			r.fail(key, r.near(key.Value, fs), "unknown key %q", clip(key.Value))
			continue
		}
		fs[i].store(r, kv.Value)
	}
}

// near is the next step for an unknown key.
func (r *reader) near(name string, fs []field) string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name
	}
	if best := Nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "known are " + strings.Join(names, ", ")
}

// text reads one line of text. Control and invisible characters are refused:
// what a file says is shown to people.
func (r *reader) text(n ast.Node, what string) (string, bool) {
	var s string
	switch v := n.(type) {
	case *ast.StringNode:
		s = v.Value
	case *ast.LiteralNode:
		s = strings.TrimSpace(v.Value.Value)
	case *ast.IntegerNode:
		s = v.Token.Value // 4096, 022: as written
	default:
		r.fail(n, "write text; quote it if it looks like something else", "%s is not text", what)
		return "", false
	}
	if len(s) > maxText || strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Cf, c) }) {
		r.fail(n, fmt.Sprintf("write one line of at most %d bytes", maxText), "%s is too long or holds control characters", what)
		return "", false
	}
	return s, true
}

// list reads a list of text; null is an empty one and so allows nothing (C-10).
func (r *reader) list(n ast.Node, what string, check func(string) (next, msg string)) []string {
	if n.Type() == ast.NullType {
		return nil
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.fail(n, "write a list: [a, b] or lines with -", "%s is not a list", what)
		return nil
	}
	if len(seq.Values) > maxEntries {
		r.fail(n, fmt.Sprintf("keep it to %d", maxEntries), "%s has %d entries", what, len(seq.Values))
		return nil
	}
	var out []string
	for _, e := range seq.Values {
		s, ok := r.text(e, "an entry of "+what)
		if !ok {
			continue
		}
		if next, msg := check(s); msg != "" {
			r.fail(e, next, "%s: %s", what, msg)
		} else if slices.Contains(out, s) {
			r.fail(e, "write it once", "%s names %q twice", what, clip(s))
		} else {
			out = append(out, s)
		}
	}
	return out
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
