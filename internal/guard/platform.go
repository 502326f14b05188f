package guard

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// Contract is one entry of docs/platform.yaml: a package that speaks to one
// platform, and the only packages that may use it. Spec: SYS-04.
type Contract struct {
	Package  string   `yaml:"package"`
	Platform string   `yaml:"platform"` // GOOS
	Speaks   string   `yaml:"speaks"`   // the interface behind it
	UsedBy   []string `yaml:"used_by"`  // directories; in order
}

const catalogue = "docs/platform.yaml"

// Portable reports whether the package in dir must build on every platform.
func Portable(dir string) bool {
	for _, root := range []string{"internal/lib", "internal/trusted", "internal/reasoning", "internal/api", "internal/client", "internal/execution/model/rules"} {
		if below(dir, root) {
			return true
		}
	}
	return dir == "internal/execution/tool" || dir == "internal/execution/model"
}

// platformImports are packages whose types or behaviour exist on one platform.
func platformImports() []string {
	return []string{
		"syscall", "os/user", "golang.org/x/sys", "github.com/landlock-lsm/go-landlock",
		"github.com/elastic/go-seccomp-bpf", "github.com/godbus/dbus", "github.com/coreos/go-systemd",
		"github.com/prometheus/procfs", "kernel.org",
	}
}

// platformPaths are prefixes of paths that mean something on Linux only.
func platformPaths() []string {
	return []string{"/proc/", "/sys/", "/dev/", "/etc/", "/run/", "/var/"}
}

// platform keeps the catalogue of platform contracts in step with the imports
// and finds platform types that leak into portable packages.
func platform(t *Tree) []Finding {
	out := contracts(t)
	const why = "portable packages build and behave the same on every platform; what a platform gives comes in through a contract of " + catalogue
	for _, p := range t.Packages {
		if !Portable(p.Dir) {
			continue
		}
		everywhere := map[string]bool{}
		for _, f := range p.code() {
			if !f.Specific {
				for _, x := range exported(f) {
					everywhere[x.name] = true
				}
			}
		}
		for _, f := range p.code() {
			for _, leak := range leaks(t, f, everywhere) {
				out = append(out, Finding{leak.Where, leak.Msg, why})
			}
		}
	}
	return out
}

type export struct {
	name string
	node ast.Node // the signature of a function, the definition of a type
}

// exported lists the exported functions and types of a file. Methods count
// under their own name: a type that gains one on a platform is another type.
func exported(f *File) []export {
	var out []export
	for _, d := range f.AST.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				out = append(out, export{d.Name.Name, d.Type})
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() {
					out = append(out, export{ts.Name.Name, ts.Type})
				}
			}
		}
	}
	return out
}

// leaks lists what of a platform a portable package shows. A file that is built
// for some platforms only may use theirs, but what it exports must exist
// everywhere and name no type of the platform.
func leaks(t *Tree, f *File, everywhere map[string]bool) []Finding {
	var out []Finding
	if f.Specific {
		for _, x := range exported(f) {
			if !everywhere[x.name] {
				out = append(out, Finding{Where: t.at(x.node.Pos()), Msg: "exports " + x.name + " on some platforms only"})
			}
			if typ := platformType(f, x.node); typ != "" {
				out = append(out, Finding{Where: t.at(x.node.Pos()), Msg: x.name + " shows platform type " + typ})
			}
		}
		return out
	}
	for _, imp := range f.Imports {
		if isPlatform(imp) {
			out = append(out, Finding{Where: f.Path, Msg: "imports platform package " + imp})
		}
		if to := t.local(imp); below(to, "internal/host") {
			out = append(out, Finding{Where: f.Path, Msg: "imports platform contract " + to})
		}
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		s, err := strconv.Unquote(lit.Value)
		if err == nil && slices.ContainsFunc(platformPaths(), func(p string) bool { return strings.HasPrefix(s, p) }) {
			out = append(out, Finding{Where: t.at(lit.Pos()), Msg: "names platform path " + s})
		}
		return true
	})
	return out
}

func isPlatform(imp string) bool {
	return slices.ContainsFunc(platformImports(), func(p string) bool { return below(imp, p) })
}

// platformType returns the first selector below n that belongs to a platform
// package which the file imports.
func platformType(f *File, n ast.Node) string {
	found := ""
	ast.Inspect(n, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || found != "" {
			return found == ""
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && slices.ContainsFunc(f.Imports, func(imp string) bool { return isPlatform(imp) && path.Base(imp) == x.Name }) {
			found = x.Name + "." + sel.Sel.Name
		}
		return true
	})
	return found
}

// contracts compares the catalogue with who really imports internal/host.
func contracts(t *Tree) []Finding {
	const why = "who may speak to the kernel is a reviewed list"
	users := map[string]map[string]bool{}
	for _, p := range t.Packages {
		if below(p.Dir, "internal/host") && len(p.code()) > 0 && users[p.Dir] == nil {
			users[p.Dir] = map[string]bool{}
		}
		for _, f := range p.code() {
			for _, imp := range f.Imports {
				if to := t.local(imp); below(to, "internal/host") {
					if users[to] == nil {
						users[to] = map[string]bool{}
					}
					users[to][p.Dir] = true
				}
			}
		}
	}
	list, err := readCatalogue(filepath.Join(t.Root, filepath.FromSlash(catalogue)))
	if err != nil && len(users) > 0 {
		return []Finding{{catalogue, err.Error(), why}}
	}
	var out []Finding
	for _, c := range list {
		have, ok := users[c.Package]
		if !ok {
			out = append(out, Finding{catalogue, c.Package + " is listed but not there", why})
			continue
		}
		if c.Platform == "" || c.Speaks == "" {
			out = append(out, Finding{catalogue, c.Package + " has no platform or does not say what it speaks", why})
		}
		if got := slices.Sorted(maps.Keys(have)); !slices.Equal(got, c.UsedBy) {
			out = append(out, Finding{catalogue, fmt.Sprintf("%s is used by %v, listed are %v", c.Package, got, c.UsedBy), why})
		}
		delete(users, c.Package)
	}
	for _, dir := range slices.Sorted(maps.Keys(users)) {
		out = append(out, Finding{catalogue, fmt.Sprintf("%s is not listed; used by %v", dir, slices.Sorted(maps.Keys(users[dir]))), why})
	}
	return out
}

func readCatalogue(name string) ([]Contract, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, errors.New("catalogue is missing")
	}
	var doc struct {
		Contracts []Contract `yaml:"contracts"`
	}
	if err := yaml.UnmarshalWithOptions(b, &doc, yaml.Strict()); err != nil {
		first, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return nil, fmt.Errorf("parse catalogue: %s", first)
	}
	return doc.Contracts, nil
}
