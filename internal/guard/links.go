package guard

import (
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	mdLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	testRef = regexp.MustCompile("`([a-z][\\w/-]*\\.(?:Test|Fuzz)[A-Z]\\w*)`")
	// docPath matches a quoted path of the tree's own folders; a trailing slash
	// or a file name, no pattern.
	docPath = regexp.MustCompile("`((?:internal|cmd|integration|docs|api)/[\\w./-]+)`")
)

// docs checks that what prose points to is there: relative links, tests, and
// paths of our own folders.
func docs(t *Tree) []Finding {
	const why = "a document that points to nothing is believed until somebody looks"
	have := t.testFuncs()
	var out []Finding
	pages := append(t.glob("*.md"), append(t.glob("docs/*.md"), append(t.glob("docs/adr/*.md"), t.glob("docs/spec/*.md")...)...)...)
	for _, page := range pages {
		b, err := t.read(page)
		if err != nil {
			out = append(out, Finding{page, err.Error(), why})
			continue
		}
		add := func(off int, msg string) {
			out = append(out, Finding{page + ":" + lineOf(b, off), msg, why})
		}
		for _, m := range mdLink.FindAllSubmatchIndex(b, -1) {
			target := string(b[m[2]:m[3]])
			if u, err := url.Parse(target); err != nil || u.Scheme != "" || u.Path == "" {
				continue // elsewhere, or within the page
			} else if !t.exists(path.Join(path.Dir(page), u.Path)) {
				add(m[0], "links to "+target+", which is not there")
			}
		}
		for _, m := range testRef.FindAllSubmatchIndex(b, -1) {
			if msg := t.proof(string(b[m[2]:m[3]]), have); msg != "" {
				add(m[0], msg)
			}
		}
		for _, m := range docPath.FindAllSubmatchIndex(b, -1) {
			if p := string(b[m[2]:m[3]]); !strings.Contains(p, ".Test") && !strings.Contains(p, ".Fuzz") && !t.exists(p) {
				add(m[0], "names "+p+", which is not there")
			}
		}
	}
	return append(out, citedPages(t, why)...)
}

var citedPage = regexp.MustCompile(`\bdocs/[\w/-]+\.(?:md|yaml)\b`)

// citedPages checks the pages of docs that comments point to.
func citedPages(t *Tree, why string) []Finding {
	var out []Finding
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, c := range f.AST.Comments {
				for _, page := range citedPage.FindAllString(c.Text(), -1) {
					if !t.exists(page) {
						out = append(out, Finding{t.at(c.Pos()), "cites " + page + ", which is not there", why})
					}
				}
			}
		}
	}
	return out
}
