package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"agentos/internal/lib/fault"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Limits of one configuration file.
const (
	MaxFile  = 64 << 10 // bytes
	maxDepth = 8        // nested sections
)

// readFile returns the bytes of a configuration file that only its owner, who
// is us or root, can have written. What it opened is what it checked.
func readFile(path string) ([]byte, error) {
	f, err := openConfig(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkOwner(f, path); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "check the disk and the file", "read configuration %q", path)
	}
	if len(data) > MaxFile {
		return nil, fault.New(fault.Limit, fmt.Sprintf("keep it below %d KiB", MaxFile>>10), "read configuration %q: too large", path)
	}
	return data, nil
}

// found is one value of a file.
type found struct {
	key string
	raw raw
}

// parseFile reads one YAML document of nested sections. Unknown keys, wrong
// types, duplicates, anchors, tags and merges are problems; all are reported.
func parseFile(name string, data []byte, keys map[string]key) (vals []found, probs []error) {
	if strings.TrimSpace(string(data)) == "" {
		return nil, nil
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, []error{syntax(name, err)}
	}
	if len(file.Docs) > 1 {
		return nil, []error{at(name, 1, "write one document, without ---", "the file holds %d documents", len(file.Docs))}
	}
	w := walker{name: name, keys: keys}
	if len(file.Docs) == 1 && file.Docs[0].Body != nil {
		w.section("", file.Docs[0].Body, 0)
	}
	return w.vals, w.probs
}

func at(name string, line int, next, format string, args ...any) error {
	return fault.New(fault.Usage, next, "%s:%d: %s", name, line, fmt.Sprintf(format, args...))
}

// syntax keeps the position of a YAML error and drops its picture of the file.
func syntax(name string, err error) error {
	line, msg := 1, err.Error()
	var ye yaml.Error
	if errors.As(err, &ye) {
		msg = ye.GetMessage()
		if t := ye.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
	}
	msg, _, _ = strings.Cut(msg, "\n")
	return at(name, line, "fix the YAML there; docs/config.reference.yaml shows every key", "%s", clip(msg))
}

type walker struct {
	name  string
	keys  map[string]key
	vals  []found
	probs []error
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

func (w *walker) fail(n ast.Node, next, format string, args ...any) {
	w.probs = append(w.probs, at(w.name, lineOf(n), next, format, args...))
}

// section walks one mapping; prefix is its dotted name with a final dot.
func (w *walker) section(prefix string, n ast.Node, depth int) {
	m, ok := n.(*ast.MappingNode)
	switch {
	case n.Type() == ast.CommentType || n.Type() == ast.NullType:
		return // nothing but comments, or a section whose lines are all commented out
	case !ok:
		w.fail(n, "write key: value lines", "%s is not a section of keys", orFile(strings.TrimSuffix(prefix, ".")))
		return
	case depth > maxDepth:
		w.fail(n, "remove the nesting", "sections nest deeper than %d", maxDepth)
		return
	}
	for _, kv := range m.Values {
		ks, ok := kv.Key.(*ast.StringNode)
		if !ok {
			w.fail(kv.Key, "write plain keys; anchors, merges and tags are not read", "key %q is not plain text", clip(kv.Key.String()))
			continue
		}
		name := prefix + ks.Value
		if strings.Contains(ks.Value, ".") {
			w.fail(kv.Key, "write sections, one name a level", "key %q holds a dot", clip(ks.Value))
			continue
		}
		if k, ok := w.keys[name]; ok {
			w.value(k, kv.Value)
		} else if w.isSection(name + ".") {
			w.section(name+".", kv.Value, depth+1)
		} else {
			w.fail(kv.Key, nearest(name, w.keys), "unknown key %q", clip(name))
		}
	}
}

func orFile(s string) string {
	if s == "" {
		return "the file"
	}
	return fmt.Sprintf("%q", s)
}

func (w *walker) isSection(prefix string) bool {
	for k := range w.keys {
		if strings.HasPrefix(k, prefix) {
			return true
		}
	}
	return false
}

// value checks the type of one value and keeps it with its line.
func (w *walker) value(k key, n ast.Node) {
	r := raw{origin: FromFile, source: fmt.Sprintf("%s:%d", w.name, lineOf(n))}
	wrong := func(n ast.Node) { w.fail(n, "write "+k.shape.String(), "%s takes %s", k.name, k.shape) }
	if n.Type() == ast.NullType {
		if k.shape != shapeList {
			wrong(n)
			return
		}
		w.vals = append(w.vals, found{key: k.name, raw: r})
		return
	}
	if k.shape == shapeList {
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			wrong(n)
			return
		}
		for _, e := range seq.Values {
			s, ok := text(e)
			if !ok {
				w.fail(e, "write text entries", "%s: an entry is not text", k.name)
				return
			}
			r.list = append(r.list, s)
		}
		w.vals = append(w.vals, found{key: k.name, raw: r})
		return
	}
	ok := false
	switch v := n.(type) {
	case *ast.IntegerNode:
		r.text, ok = v.Token.Value, k.shape == shapeInt || k.shape == shapeTime
	case *ast.BoolNode:
		r.text, ok = fmt.Sprint(v.Value), k.shape == shapeBool
	default:
		r.text, ok = text(n)
		ok = ok && (k.shape == shapeText || k.shape == shapePath || k.shape == shapeTime)
	}
	if !ok {
		wrong(n)
		return
	}
	w.vals = append(w.vals, found{key: k.name, raw: r})
}

func text(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	return "", false
}

func notExist(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, errNotDir) }
