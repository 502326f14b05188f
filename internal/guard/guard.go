// Package guard checks the repository itself: who may import whom, what each
// binary links, room cards, sizes, portability, fuzz targets, skips, and that
// the documents name things that exist.
//
// State owned: none; the reviewed lists under testdata/ are its data. Imports:
// standard library, go-yaml. Imported by: nobody, its tests run the checks.
// Invariants: a check is a pure function of a tree on disk; every check has a
// bad tree in testdata/bad that it must refuse, so a check that can't fail
// fails. Spec: AOS-01, SYS-04, INV-13, REP-09.
// Tests: guard_test.go, binaries_test.go, portable_test.go.
package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Finding is one thing that a check refuses.
type Finding struct {
	Where string // path, and line where there is one
	Msg   string // what is wrong
	Why   string // the reason the rule exists
}

// String renders the finding with its reason.
func (f Finding) String() string { return f.Where + ": " + f.Msg + " (" + f.Why + ")" }

// Check is one rule over a tree.
type Check struct {
	Name string
	Run  func(*Tree) []Finding
}

// Checks lists every check that reads only the tree's own files. Checks that
// run the go command are tests of their own.
func Checks() []Check {
	return []Check{
		{"imports", imports},
		{"cards", cards},
		{"leaves", leaves},
		{"sizes", sizes},
		{"fanout", fanout},
		{"platform", platform},
		{"formats", formats},
		{"code", code},
		{"pure", pure},
		{"skips", skips},
		{"text", text},
		{"claims", claims},
		{"citations", citations},
		{"docs", docs},
	}
}

// File is one parsed Go file.
type File struct {
	Path      string // slash-separated, relative to the root
	Test      bool
	Generated bool
	Specific  bool // not part of every platform's build
	Lines     int
	AST       *ast.File
	Imports   []string
}

// Package is one directory of Go files.
type Package struct {
	Dir   string // relative to the root, which is also the path below the module
	Name  string
	Files []*File // in order of their names
}

// Tree is a loaded repository.
type Tree struct {
	Root     string
	Module   string
	Fset     *token.FileSet
	Packages []*Package // in order of their directories
}

// Load parses every Go file under root, for all platforms. Directories named
// testdata, bin and build and those that start with a dot are left out.
func Load(root string) (*Tree, error) {
	mod, err := moduleOf(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	t := &Tree{Root: root, Module: mod, Fset: token.NewFileSet()}
	dirs := map[string]*Package{}
	err = t.walk(func(rel string) error {
		if !strings.HasSuffix(rel, ".go") || strings.Contains(rel, "testdata/") {
			return nil
		}
		f, err := t.parse(rel)
		if err != nil {
			return err
		}
		dir := path.Dir(rel)
		p := dirs[dir]
		if p == nil {
			p = &Package{Dir: dir}
			dirs[dir] = p
			t.Packages = append(t.Packages, p)
		}
		if !f.Test {
			p.Name = f.AST.Name.Name
		}
		p.Files = append(p.Files, f)
		return nil
	})
	return t, err
}

// walk calls fn for every file of the tree that is source or text of ours.
func (t *Tree) walk(fn func(rel string) error) error {
	return filepath.WalkDir(t.Root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(t.Root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == ".git" || rel == "bin" || rel == "build" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return fn(rel)
	})
}

func (t *Tree) parse(rel string) (*File, error) {
	full := filepath.Join(t.Root, filepath.FromSlash(rel))
	src, err := os.ReadFile(full)
	if err != nil {
		return nil, err
	}
	a, err := parser.ParseFile(t.Fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %q: %w", rel, err)
	}
	f := &File{Path: rel, Test: strings.HasSuffix(rel, "_test.go"), Generated: ast.IsGenerated(a), Lines: bytes.Count(src, []byte("\n")), AST: a}
	for _, s := range a.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("import in %q: %w", rel, err)
		}
		f.Imports = append(f.Imports, p)
	}
	for _, goos := range []string{"windows", "darwin"} {
		ctx := build.Default
		ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled = goos, "amd64", false
		ok, err := ctx.MatchFile(filepath.Dir(full), filepath.Base(full))
		if err != nil {
			return nil, fmt.Errorf("match %q: %w", rel, err)
		}
		f.Specific = f.Specific || !ok
	}
	return f, nil
}

// at renders a position as path:line.
func (t *Tree) at(pos token.Pos) string {
	p := t.Fset.Position(pos)
	return p.Filename + ":" + strconv.Itoa(p.Line)
}

// local returns the directory of one of our packages, or "" for a foreign one.
func (t *Tree) local(imp string) string {
	if rest, ok := strings.CutPrefix(imp, t.Module+"/"); ok {
		return rest
	}
	return ""
}

// code yields the package's files that are compiled into binaries.
func (p *Package) code() []*File {
	return slices.DeleteFunc(slices.Clone(p.Files), func(f *File) bool { return f.Test })
}

// below reports whether dir is root or lies beneath it.
func below(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

func moduleOf(gomod string) (string, error) {
	b, err := os.ReadFile(gomod)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if m, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(m), nil
		}
	}
	return "", fmt.Errorf("find module line in %q", gomod)
}

// allowed is a reviewed list of exceptions: "key reason" a line, # comments.
// Keys that no check asks for are findings: an exception must not outlive its
// cause.
type allowed struct {
	path   string
	reason map[string]string
	used   map[string]bool
	bad    []Finding
}

func (t *Tree) allow(name string) *allowed {
	a := &allowed{path: "internal/guard/testdata/allow/" + name, reason: map[string]string{}, used: map[string]bool{}}
	b, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(a.path)))
	if err != nil {
		return a // no list: no exceptions
	}
	s := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		key, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); len(reason) < 10 {
			a.bad = append(a.bad, Finding{fmt.Sprintf("%s:%d", a.path, n), "no reason for " + key, "an exception carries its reason"})
		}
		a.reason[key] = reason
	}
	return a
}

// has reports whether key is excepted and marks it as used.
func (a *allowed) has(key string) bool {
	if _, ok := a.reason[key]; ok {
		a.used[key] = true
		return true
	}
	return false
}

// rest returns malformed and unused entries.
func (a *allowed) rest() []Finding {
	out := a.bad
	for key := range a.reason {
		if !a.used[key] {
			out = append(out, Finding{a.path, "stale entry " + key, "an exception must not outlive its cause"})
		}
	}
	return out
}
