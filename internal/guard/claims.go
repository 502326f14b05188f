package guard

import (
	"bytes"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func lineOf(b []byte, off int) string { return strconv.Itoa(1 + bytes.Count(b[:off], []byte("\n"))) }

var (
	fuzzName = regexp.MustCompile(`\bFuzz[A-Z]\w*`)
	quoted   = regexp.MustCompile("`([^`]+)`")
	specID   = regexp.MustCompile(`\b(AOS|OSA|SYS|GW|REP|INV|C)-[0-9]{2}\b`)
)

// formats checks that each format's page names fuzz targets that exist.
func formats(t *Tree) []Finding {
	const why = "bytes from outside are parsed by code that was fuzzed; the page says by which target"
	ok := t.allow("formats.txt")
	have := t.testFuncs()
	var out []Finding
	for _, page := range t.glob("docs/spec/*.md") {
		b, err := t.read(page)
		if err != nil {
			out = append(out, Finding{page, err.Error(), why})
			continue
		}
		names := fuzzName.FindAllString(string(b), -1)
		if len(names) == 0 && !ok.has(page) {
			out = append(out, Finding{page, "names no fuzz target", why})
		}
		for _, n := range names {
			if len(have[n]) == 0 {
				out = append(out, Finding{page, "names " + n + ", which no test file has", why})
			}
		}
	}
	return append(out, ok.rest()...)
}

// testFuncs maps the functions of test files to the directories they are in.
func (t *Tree) testFuncs() map[string][]string {
	out := map[string][]string{}
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if !f.Test {
				continue
			}
			for _, d := range f.AST.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					out[fn.Name.Name] = append(out[fn.Name.Name], p.Dir)
				}
			}
		}
	}
	return out
}

func (t *Tree) read(rel string) ([]byte, error) {
	return os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(rel)))
}

func (t *Tree) glob(pattern string) []string {
	m, err := fs.Glob(os.DirFS(t.Root), pattern)
	if err != nil {
		return nil // only for a malformed pattern, and ours are literals
	}
	return m
}

// row is one line of a claims table.
type row struct {
	where string
	cells []string
}

// table reads the rows of every markdown table in a page whose first cell is
// an ID.
func (t *Tree) table(page string, id *regexp.Regexp) ([]row, error) {
	b, err := t.read(page)
	if err != nil {
		return nil, err
	}
	var out []row
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if id.MatchString(cells[0]) {
			out = append(out, row{fmt.Sprintf("%s:%d", page, n), cells})
		}
	}
	return out, nil
}

// states of the two claims pages: whether a row in that state needs a proof.
func states() map[string]map[string]bool {
	return map[string]map[string]bool{
		"docs/assumptions.md": {"tested": true, "checked": true, "assumed": false},
		"docs/coverage.md":    {"met": true, "part": true, "not yet": false},
	}
}

// claims checks that what the documents say is shown by something that exists.
// Spec: REP-09.
func claims(t *Tree) []Finding {
	const why = "a claim counts when something that runs shows it"
	have := t.testFuncs()
	var out []Finding
	for _, page := range []string{"docs/assumptions.md", "docs/coverage.md"} {
		rows, err := t.table(page, regexp.MustCompile(`^[A-Z]+-[0-9]+$`))
		if err != nil || len(rows) == 0 {
			out = append(out, Finding{page, "page is missing or has no rows", why})
			continue
		}
		seen := map[string]bool{}
		for _, r := range rows {
			if len(r.cells) != 4 {
				out = append(out, Finding{r.where, fmt.Sprintf("%d cells, want ID, claim, state, shown by", len(r.cells)), why})
				continue
			}
			id, state, shown := r.cells[0], r.cells[2], r.cells[3]
			if seen[id] {
				out = append(out, Finding{r.where, id + " has two rows", why})
			}
			seen[id] = true
			needs, ok := states()[page][state]
			if !ok {
				out = append(out, Finding{r.where, fmt.Sprintf("unknown state %q", state), why})
			}
			refs := quoted.FindAllStringSubmatch(shown, -1)
			if needs && len(refs) == 0 {
				out = append(out, Finding{r.where, id + " is " + state + " but names nothing that shows it", why})
			}
			for _, m := range refs {
				if msg := t.proof(m[1], have); msg != "" {
					out = append(out, Finding{r.where, msg, why})
				}
			}
		}
	}
	return out
}

// proof returns what is wrong with a reference: "dir.TestName", or a path.
func (t *Tree) proof(ref string, have map[string][]string) string {
	dir, name, isFunc := strings.Cut(ref, ".Test")
	if isFunc {
		name = "Test" + name
	} else if dir, name, isFunc = strings.Cut(ref, ".Fuzz"); isFunc {
		name = "Fuzz" + name
	}
	if !isFunc {
		if !t.exists(ref) {
			return "names " + ref + ", which is not there"
		}
		return ""
	}
	for _, d := range have[name] {
		if d == dir || d == path.Join("internal", dir) {
			return ""
		}
	}
	return "names test " + ref + ", which is not there"
}

// citations checks that each requirement that code cites has a row in
// docs/coverage.md.
func citations(t *Tree) []Finding {
	const why = "docs/coverage.md says how far each requirement that code works for is met"
	rows, err := t.table("docs/coverage.md", specID)
	if err != nil {
		return nil // claims reports the missing page
	}
	known := map[string]bool{}
	for _, r := range rows {
		known[r.cells[0]] = true
	}
	var out []Finding
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, c := range f.AST.Comments {
				for _, id := range specID.FindAllString(c.Text(), -1) {
					if !known[id] {
						out = append(out, Finding{t.at(c.Pos()), "cites " + id + ", which has no row", why})
					}
				}
			}
		}
	}
	return out
}
