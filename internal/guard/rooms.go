package guard

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Limits of the house.
const (
	maxFile     = 800 // lines, hard
	softFile    = 400 // lines of code that ships; beyond it the file has a reason in files.txt
	maxFunc     = 80  // lines of a function that ships
	maxFanOut   = 6   // packages of ours that a room imports
	maxCardLine = 40  // lines: a card is read at a glance
)

// roomLines bounds the rooms that tend to swallow everything: lines that ship.
func roomLines() map[string]int {
	return map[string]int{"internal/trusted/gate": 1600, "internal/control/daemon": 1600, "internal/control/supervisor": 1600}
}

// wiring lists the rooms whose job is to put others together, with how many.
func wiring() map[string]int {
	return map[string]int{
		"internal/control/authority":  9,  // the gate and each of its stages
		"internal/control/supervisor": 14, // a run's parts, each with its wire, and what the gate needs of it
		"internal/control/wrapped":    8,  // a run's two parts, their wires, and four words of trusted for its records
		"internal/control/daemon":     28, // every service of the control API with what it is made of
	}
}

var testFile = regexp.MustCompile(`\b[\w/.-]+_test\.go\b`)

// cards checks that each package has exactly one room card.
func cards(t *Tree) []Finding {
	const why = "the room card says what a package owns and who may touch it, so that a change finds its place without reading the tree"
	var out []Finding
	for _, p := range t.Packages {
		var card string
		n, generated := 0, true
		for _, f := range p.code() {
			generated = generated && f.Generated
			if f.AST.Doc != nil && !f.Generated {
				n++
				card = f.AST.Doc.Text()
			}
		}
		if len(p.code()) == 0 || generated {
			continue
		}
		if n != 1 {
			out = append(out, Finding{p.Dir, fmt.Sprintf("%d package comments, want one room card", n), why})
			continue
		}
		for _, msg := range cardFaults(t, p, card) {
			out = append(out, Finding{p.Dir, msg, why})
		}
	}
	return out
}

func cardFaults(t *Tree, p *Package, card string) []string {
	var out []string
	if n := strings.Count(card, "\n"); n > maxCardLine {
		out = append(out, fmt.Sprintf("room card has %d lines, limit %d", n, maxCardLine))
	}
	flat := strings.Join(strings.Fields(card), " ")
	want := []string{"State owned", "Imported by", "Tests"}
	open := "Package " + p.Name + " "
	if p.Name == "main" {
		want, open = []string{"Tests"}, "Command "+path.Base(p.Dir)+" "
	}
	if !strings.HasPrefix(flat, open) {
		out = append(out, fmt.Sprintf("room card does not begin with %q", open))
	}
	for _, w := range want {
		if !strings.Contains(flat, w) {
			out = append(out, fmt.Sprintf("room card does not say %q", w))
		}
	}
	// Helpers of a test are below it, so a test may be one folder up.
	for _, name := range testFile.FindAllString(flat, -1) {
		places := []string{path.Join(p.Dir, name), path.Join(path.Dir(p.Dir), name), name, path.Join("internal", name)}
		if !slices.ContainsFunc(places, t.exists) {
			out = append(out, fmt.Sprintf("room card names %s, which is not there", name))
		}
	}
	return out
}

func (t *Tree) exists(rel string) bool {
	_, err := os.Stat(filepath.Join(t.Root, filepath.FromSlash(rel)))
	return err == nil
}

// sizes checks files, functions and the rooms with a limit of their own.
func sizes(t *Tree) []Finding {
	const why = "a file is read as a whole and a function fits a screen; long ones hide a second job"
	ok := t.allow("files.txt")
	var out []Finding
	for _, p := range t.Packages {
		total := 0
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			if !f.Test {
				total += f.Lines
			}
			switch {
			case f.Lines > maxFile:
				out = append(out, Finding{f.Path, fmt.Sprintf("%d lines, hard limit %d", f.Lines, maxFile), why})
			case f.Lines > softFile && !f.Test && !ok.has(f.Path):
				out = append(out, Finding{f.Path, fmt.Sprintf("%d lines, limit %d without a reason in %s", f.Lines, softFile, ok.path), why})
			}
			if !f.Test {
				out = append(out, longFuncs(t, f, ok, why)...)
			}
		}
		if limit := roomLines()[p.Dir]; limit > 0 && total > limit {
			out = append(out, Finding{p.Dir, fmt.Sprintf("%d lines that ship, limit %d", total, limit), "gate and daemon tend to swallow everything: the gate is a list of stages, the daemon only wires"})
		}
	}
	return append(out, ok.rest()...)
}

func longFuncs(t *Tree, f *File, ok *allowed, why string) []Finding {
	var out []Finding
	for _, d := range f.AST.Decls {
		fn, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		n := t.Fset.Position(fn.End()).Line - t.Fset.Position(fn.Pos()).Line + 1
		if n > maxFunc && !ok.has(f.Path+":"+fn.Name.Name) {
			out = append(out, Finding{t.at(fn.Pos()), fmt.Sprintf("function %s has %d lines, limit %d", fn.Name.Name, n, maxFunc), why})
		}
	}
	return out
}

// words are packages that hold vocabulary: using them ties a room to nobody.
func words() []string {
	return []string{"internal/lib", "internal/api", "internal/trusted/call"}
}

// fanout limits how many rooms a room imports. Words don't count, and mains are
// lists of parts by design.
func fanout(t *Tree) []Finding {
	ok := t.allow("fanout.txt")
	var out []Finding
	for _, p := range t.Packages {
		if p.Name == "main" || !below(p.Dir, "internal") {
			continue
		}
		seen := map[string]bool{}
		for _, f := range p.code() {
			for _, imp := range f.Imports {
				if to := t.local(imp); to != "" && !slices.ContainsFunc(words(), func(w string) bool { return below(to, w) }) {
					seen[to] = true
				}
			}
		}
		limit := max(maxFanOut, wiring()[p.Dir])
		if len(seen) > limit && !ok.has(p.Dir) {
			out = append(out, Finding{p.Dir, fmt.Sprintf("imports %d rooms, limit %d", len(seen), limit), "a room that needs many others does their job or wires; wiring belongs to control/daemon and cmd"})
		}
	}
	return append(out, ok.rest()...)
}
