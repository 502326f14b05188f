package guard

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// plane says what the packages below a directory may import directly.
type plane struct {
	root string
	may  []string // directories of ours
	// libs, when set, are the only foreign modules (by import path prefix).
	libs []string
	// also are single edges beyond may, for one room.
	also []edge
	// not are standard or foreign packages that are refused, as prefixes.
	not []string
	why string
}

// edge lets a room, or every room of a plane, import one package, with its
// reason.
type edge struct{ from, to, because string }

const (
	whyTrusted   = "the policy plane is the trusted computing base: pure logic over interfaces, no network, no SQL, no kernel; whatever it imports has to be trusted too"
	whyReasoning = "reasoning is untrusted: it reaches the world only through the gate, so it may not even link what is behind it"
	whyRooms     = "a room declares the small interface that it needs where it needs it; rooms that import each other grow into one"
)

// planes is the import table of docs/ARCHITECTURE.md.
func planes() []plane {
	const in = "internal/"
	kernel := []string{"syscall", "golang.org/x/sys", "os/user", "unsafe", "C", "plugin"}
	return []plane{
		{root: in + "lib", may: []string{in + "lib"},
			why: "lib holds leaves, one job each, so that any plane may import one without pulling a plane in"},
		{root: in + "trusted", may: []string{in + "lib", in + "trusted"},
			libs: []string{
				"github.com/cedar-policy/cedar-go", "github.com/santhosh-tekuri/jsonschema/v6",
				"github.com/go-json-experiment/json", "github.com/oklog/ulid/v2",
				"golang.org/x/mod/sumdb", "golang.org/x/text", "golang.org/x/sync",
			},
			not: append([]string{"net", "database/sql", "os", "os/exec"}, kernel...),
			why: whyTrusted},
		{root: in + "reasoning", may: []string{in + "lib", in + "api", in + "client", in + "reasoning"},
			not: append([]string{"os/exec", "database/sql"}, kernel...), why: whyReasoning},
		{root: in + "host", may: []string{in + "lib", in + "host"},
			why: "host packages are thin contracts over kernel interfaces; a policy or a tool in one would hide an effect below the gate"},
		{root: in + "execution", may: []string{in + "lib", in + "trusted", in + "host"},
			also: []edge{
				{in + "execution", in + "execution/tool", "what a tool is: words and values that every room of the plane shares"},
				{in + "execution", in + "execution/model", "what a model call is: the same"},
				{in + "execution/sandbox", in + "execution/profile", "a plan is made from a profile, which is data"},
				{in + "execution/shim", in + "api/gatewire", "the shim is a run's client of the gate and speaks its wire"},
				{in + "execution/jailer", in + "api/launchwire", "the jailer serves the launch wire and speaks nothing else"},
				{in + "execution/shim", in + "api/runspec", "and passes the loop's report on"},
				{in + "execution/relay", in + "api/gatewire", "the shim's part in a wrapped run speaks the same wire"},
			},
			why: whyRooms},
		{root: in + "system", may: []string{in + "lib", in + "trusted", in + "host"}, why: whyRooms},
		{root: in + "control", may: []string{in + "lib", in + "trusted", in + "host", in + "execution", in + "system", in + "api", in + "control"},
			why: "control wires the planes behind the gate; it links neither the client's side nor the reasoning that it supervises"},
		{root: in + "api", may: []string{in + "lib", in + "api"},
			why: "the API is a contract: both sides link it, so it links neither"},
		{root: in + "client", may: []string{in + "lib", in + "api", in + "client"},
			why: "a client holds no authority and links no part of the daemon"},
		{root: in + "cli", may: []string{in + "lib", in + "api", in + "client", in + "cli"},
			not: []string{"database/sql", "modernc.org/sqlite"},
			why: "the command line is a thin client: what it shows comes from the daemon that enforces it"},
		{root: in + "guard", may: []string{in + "guard"},
			why: "the guard judges the tree and must not depend on it"},
		{root: "cmd", may: []string{in + "lib", in + "trusted", in + "host", in + "execution", in + "system", in + "control", in + "api", in + "client", in + "cli", in + "reasoning"},
			why: "a main wires; what each may link is checked for each binary"},
		{root: "integration", may: []string{in, "integration"},
			why: "integration tests may look into everything but are imported by nothing"},
	}
}

// imports applies the table to the direct imports of code that ships.
func imports(t *Tree) []Finding {
	var out []Finding
	for _, p := range t.Packages {
		i := slices.IndexFunc(planes(), func(pl plane) bool { return below(p.Dir, pl.root) })
		if i < 0 {
			out = append(out, Finding{p.Dir, "package is in no plane", "the tree shows the planes; a new one needs its rule in internal/guard/planes.go"})
			continue
		}
		pl := planes()[i]
		for _, f := range p.code() {
			if f.Generated {
				continue
			}
			for _, imp := range f.Imports {
				if msg := pl.refuses(t, p.Dir, imp); msg != "" {
					out = append(out, Finding{f.Path, msg, pl.why})
				}
			}
		}
	}
	return out
}

// refuses returns why dir may not import imp, or "".
func (pl plane) refuses(t *Tree, dir, imp string) string {
	if to := t.local(imp); to != "" {
		for _, m := range pl.may {
			if below(to, strings.TrimSuffix(m, "/")) {
				return ""
			}
		}
		if slices.ContainsFunc(pl.also, func(e edge) bool { return below(dir, e.from) && to == e.to }) {
			return ""
		}
		if room(pl.root, dir) != "" && room(pl.root, dir) == room(pl.root, to) {
			return "" // a room and its own sub-rooms
		}
		return fmt.Sprintf("%s may not import %s", pl.root, to)
	}
	for _, n := range pl.not {
		if below(imp, n) && (n != "os" || imp == "os") {
			return fmt.Sprintf("%s may not import %s", pl.root, imp)
		}
	}
	if pl.libs != nil && strings.Contains(firstElem(imp), ".") {
		if !slices.ContainsFunc(pl.libs, func(l string) bool { return below(imp, l) }) {
			return fmt.Sprintf("%s may not import %s, which is not in its list of libraries", pl.root, imp)
		}
	}
	return ""
}

// room is the first element below the plane: "tool" of execution/tool/linux.
func room(root, dir string) string {
	rest, ok := strings.CutPrefix(dir, root+"/")
	if !ok {
		return ""
	}
	return firstElem(rest)
}

func firstElem(p string) string { first, _, _ := strings.Cut(p, "/"); return first }

// leaves checks that a package can be named without its path.
func leaves(t *Tree) []Finding {
	var out []Finding
	seen := map[string]string{}
	for _, p := range t.Packages {
		if !below(p.Dir, "internal") || len(p.code()) == 0 {
			continue
		}
		leaf := path.Base(p.Dir)
		if p.Name != leaf {
			out = append(out, Finding{p.Dir, "package is named " + p.Name, "a package is named after its directory"})
		}
		if below(p.Dir, "internal/cli") {
			continue // its rooms are called like the nouns they show: cli/audit, cli/policy
		}
		if other, ok := seen[leaf]; ok {
			out = append(out, Finding{p.Dir, "leaf name also used by " + other, "a room is named after the thing it owns, and two rooms own different things"})
		}
		seen[leaf] = p.Dir
	}
	return out
}
