package guard

import (
	"bytes"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// code refuses calls that the house doesn't use in code that ships or in tests.
func code(t *Tree) []Finding {
	ok := t.allow("calls.txt")
	var out []Finding
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			for _, d := range f.AST.Decls {
				fn, is := d.(*ast.FuncDecl)
				if is && fn.Name.Name == "init" && fn.Recv == nil {
					out = append(out, Finding{t.at(fn.Pos()), "init function", "the composition root is one visible list; nothing registers itself"})
				}
			}
			ast.Inspect(f.AST, func(n ast.Node) bool {
				c, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				if calleeOf(c) == "synctest.Test" {
					return false // time is fake in there, and sleeping exact
				}
				name, why := banned(calleeOf(c), f.Test, p.Name == "main")
				if name != "" && !ok.has(f.Path+":"+name) {
					out = append(out, Finding{t.at(c.Pos()), "calls " + name, why})
				}
				return true
			})
		}
	}
	return append(out, ok.rest()...)
}

// pure keeps clocks, chance and goroutines out of the policy plane: the same
// call, facts and policies give the same decision.
func pure(t *Tree) []Finding {
	const why = "decisions are functions of their inputs, so that they can be explained and repeated; time comes in as an argument"
	ok := t.allow("pure.txt")
	var out []Finding
	for _, p := range t.Packages {
		if !below(p.Dir, "internal/trusted") {
			continue
		}
		for _, f := range p.code() {
			add := func(n ast.Node, what string) {
				if !ok.has(f.Path + ":" + strings.ReplaceAll(what, " ", "-")) {
					out = append(out, Finding{t.at(n.Pos()), "uses " + what, why})
				}
			}
			ast.Inspect(f.AST, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					add(n, "a goroutine")
				case *ast.SelectorExpr:
					if x, is := n.X.(*ast.Ident); is && x.Name == "time" && (n.Sel.Name == "Now" || n.Sel.Name == "Since" || n.Sel.Name == "Until") {
						add(n, "time."+n.Sel.Name)
					}
				case *ast.ImportSpec:
					if s := strings.Trim(n.Path.Value, `"`); s == "math/rand" || s == "math/rand/v2" || s == "crypto/rand" {
						add(n, s)
					}
				}
				return true
			})
		}
	}
	return append(out, ok.rest()...)
}

// calleeOf renders f(…) as "f" and x.f(…) as "x.f".
func calleeOf(c *ast.CallExpr) string {
	switch fn := c.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			return x.Name + "." + fn.Sel.Name
		}
	}
	return ""
}

func banned(callee string, test, main bool) (name, why string) {
	switch callee {
	case "time.Sleep":
		return callee, "a sleep is a guess: wait for the event, use testing/synctest, or a timer that a context ends"
	case "panic":
		if !test {
			return callee, "a panic in the gate is a denial of service; return an error"
		}
	case "log.Fatal", "log.Fatalf", "log.Fatalln", "os.Exit":
		if !test && !main {
			return callee, "only a main ends the process, after everything was closed"
		}
	}
	return "", ""
}

// skips refuses a skip that isn't on the reviewed list. The test runner makes
// every skip fatal in CI: integration/testrun.
func skips(t *Tree) []Finding {
	ok := t.allow("skips.txt")
	var out []Finding
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, d := range f.AST.Decls {
				fn, is := d.(*ast.FuncDecl)
				if !is || fn.Body == nil {
					continue
				}
				ast.Inspect(fn.Body, func(n ast.Node) bool {
					c, is := n.(*ast.CallExpr)
					if !is {
						return true
					}
					sel, is := c.Fun.(*ast.SelectorExpr)
					if is && (sel.Sel.Name == "Skip" || sel.Sel.Name == "Skipf" || sel.Sel.Name == "SkipNow") && !ok.has(f.Path+":"+fn.Name.Name) {
						out = append(out, Finding{t.at(c.Pos()), "skips in " + fn.Name.Name, "a skip hides a gap; list it in " + ok.path + " with its reason, or install what it needs in integration/setup.sh"})
					}
					return true
				})
			}
		}
	}
	return append(out, ok.rest()...)
}

// textRule is a pattern that no file of the tree may hold.
type textRule struct {
	name string
	re   *regexp.Regexp
	why  string
}

// The patterns are built from pieces so that this file doesn't hold them.
func textRules() []textRule {
	return []textRule{
		{"open-end marker", regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|XX" + "X" + `)\b`), "what is missing is an issue or a line of docs/coverage.md, where people look"},
		{"machine path", regexp.MustCompile(`(^|[\s"'=:(` + "`" + `])(/wo` + `rk|/ro` + `ot)/`), "a path of one machine works on one machine"},
		{"registry host", regexp.MustCompile(`(proxy\.gol` + `ang\.org|registry\.np` + `mjs\.org|\bpy` + `pi\.org|sum\.gol` + `ang\.org)`), "where packages come from is the host's configuration"},
	}
}

// text scans every text file: sources, scripts, documents, data.
func text(t *Tree) []Finding {
	ok := t.allow("text.txt")
	var out []Finding
	err := t.walk(func(rel string) error {
		if rel == "go.sum" || below(rel, "internal/guard/testdata/bad") {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(rel)))
		if err != nil {
			return err
		}
		if bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 {
			return nil // binary
		}
		for _, r := range textRules() {
			if m := r.re.FindIndex(b); m != nil && !ok.has(rel+":"+strings.ReplaceAll(r.name, " ", "-")) {
				out = append(out, Finding{rel + ":" + lineOf(b, m[0]), "holds a " + r.name, r.why})
			}
		}
		return nil
	})
	if err != nil {
		out = append(out, Finding{t.Root, err.Error(), "every file must be readable"})
	}
	return append(out, ok.rest()...)
}
