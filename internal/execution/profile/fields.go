package profile

import (
	"fmt"
	"slices"
	"strings"

	"agentos/internal/lib/sandboxplan"

	"github.com/goccy/go-yaml/ast"
)

// fields is every key of a profile, in the order in which the files use them.
func fields(p *Profile) []field {
	return []field{
		{"name", func(r *reader, n ast.Node) { r.line(n, "name", &p.Name) }},
		{"summary", func(r *reader, n ast.Node) { r.line(n, "summary", &p.Summary) }},
		{"commands", func(r *reader, n ast.Node) { p.Commands = r.list(n, "commands", checkCommand) }},
		{"workspace", func(r *reader, n ast.Node) { choose(r, n, "workspace", &p.Workspace, Read, Write) }},
		{"git", func(r *reader, n ast.Node) { choose(r, n, "git", &p.Git, Read, Write) }},
		{"program", func(r *reader, n ast.Node) { choose(r, n, "program", &p.Program, Refuse, Package) }},
		{"home", func(r *reader, n ast.Node) { choose(r, n, "home", &p.Home, Persistent, Private) }},
		{"read", func(r *reader, n ast.Node) { p.Read = r.list(n, "read", checkPath) }},
		{"exec", func(r *reader, n ast.Node) { p.Exec = r.list(n, "exec", checkPath) }},
		{"write", func(r *reader, n ast.Node) { p.Write = r.list(n, "write", checkPath) }},
		{"env", func(r *reader, n ast.Node) { r.env(n, p) }},
		{"limits", func(r *reader, n ast.Node) { r.limits(n, p) }},
		{"strength", func(r *reader, n ast.Node) {
			choose(r, n, "strength", &p.Strength, sandboxplan.Full, sandboxplan.Rootless)
		}},
		{"nested", func(r *reader, n ast.Node) { r.nested(n, p) }},
		{"network", func(r *reader, n ast.Node) { p.Network = r.list(n, "network", checkHost) }},
	}
}

// check holds the whole against itself.
func (p *Profile) check(r *reader) {
	if !IsName(p.Name) && len(r.probs) == 0 {
		r.probs = append(r.probs, r.at(1, "write name: with lower-case letters, digits and -", "profile name %q", clip(p.Name)))
	}
	if p.Nested && p.Why == "" {
		r.probs = append(r.probs, r.at(1, "write why: below nested:", "nested.allow has no reason"))
	}
}

// IsName reports whether s can name a profile: lower-case letters, digits and -,
// at most 40 bytes.
func IsName(s string) bool {
	return s != "" && len(s) <= 40 && s[0] != '-' && !strings.ContainsFunc(s, func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z')
	})
}

func (r *reader) line(n ast.Node, what string, to *string) {
	if s, ok := r.text(n, what); ok {
		*to = s
	}
}

// choose reads one of a few words. Null is none of them.
func choose[T ~string](r *reader, n ast.Node, what string, to *T, of ...T) {
	s, ok := r.text(n, what)
	if !ok {
		return
	}
	if !slices.Contains(of, T(s)) {
		r.fail(n, fmt.Sprintf("write one of %v", of), "%s is %q", what, clip(s))
		return
	}
	*to = T(s)
}

func (r *reader) env(n ast.Node, p *Profile) {
	if n.Type() == ast.NullType {
		return
	}
	r.mapping(n, "env", []field{
		{"set", func(r *reader, n ast.Node) { p.Set = r.set(n) }},
		{"pass", func(r *reader, n ast.Node) { p.Pass = r.list(n, "env.pass", checkPass) }},
	})
}

// set reads NAME: value lines.
func (r *reader) set(n ast.Node) map[string]string {
	if n.Type() == ast.NullType {
		return nil
	}
	m, ok := n.(*ast.MappingNode)
	if !ok || len(m.Values) > maxEntries {
		r.fail(n, fmt.Sprintf("write NAME: value lines, at most %d", maxEntries), "env.set is no such mapping")
		return nil
	}
	out := map[string]string{}
	for _, kv := range m.Values {
		name, ok := kv.Key.(*ast.StringNode)
		if !ok || !sandboxplan.IsEnvName(name.Value) {
			r.fail(kv.Key, "write a variable's name", "env.set has a key that names no variable")
			continue
		}
		if sandboxplan.SecretName(name.Value) {
			r.fail(kv.Key, secretNext, "env.set: %q is named like a secret", name.Value)
			continue
		}
		if reserved(name.Value) {
			r.fail(kv.Key, "remove it; the sandbox sets it", "env.set: %q is not a profile's to set", name.Value)
			continue
		}
		v, ok := r.text(kv.Value, "env.set."+name.Value)
		if _, twice := out[name.Value]; twice {
			r.fail(kv.Key, "write it once", "env.set names %q twice", name.Value)
		} else if ok {
			out[name.Value] = v
		}
	}
	return out
}

// reserved variables say where the sandbox put things.
func reserved(name string) bool {
	return slices.Contains([]string{"HOME", "USER", "LOGNAME", "PATH", "PWD", "TMPDIR", "AGENTOS_RUN"}, name)
}

func (r *reader) limits(n ast.Node, p *Profile) {
	if n.Type() == ast.NullType {
		return
	}
	var fs []field
	for _, name := range sandboxplan.LimitNames() {
		fs = append(fs, field{name, func(r *reader, n ast.Node) {
			s, ok := r.text(n, "limits."+name)
			if !ok {
				return
			}
			if err := p.Limits.Set(name, s); err != nil {
				r.fail(n, nextOf(err), "%v", err)
			}
		}})
	}
	r.mapping(n, "limits", fs)
}

func (r *reader) nested(n ast.Node, p *Profile) {
	r.mapping(n, "nested", []field{
		{"allow", func(r *reader, n ast.Node) {
			b, ok := n.(*ast.BoolNode)
			if !ok {
				r.fail(n, "write true or false", "nested.allow is neither")
				return
			}
			p.Nested = b.Value
		}},
		{"why", func(r *reader, n ast.Node) { r.line(n, "nested.why", &p.Why) }},
	})
}
