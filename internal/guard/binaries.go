package guard

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// link says what a binary must not contain, however indirectly.
type link struct {
	binary string
	not    []string // import paths as prefixes; ours without the module
	why    string
}

// links is the separation of the planes as a fact of the binaries. Spec:
// INV-13, AOS-01.
func links() []link {
	state := []string{"modernc.org/sqlite", "database/sql", "github.com/cedar-policy/cedar-go"}
	return []link{
		{"agentos", append([]string{"internal/trusted", "internal/execution", "internal/system", "internal/reasoning", "internal/control", "github.com/modelcontextprotocol/go-sdk"}, state...),
			"the client decides nothing and starts fast: policy, state and tools are on the other side of its descriptor"},
		{"agentosd", []string{"internal/reasoning", "internal/cli", "internal/client", "github.com/modelcontextprotocol/go-sdk"},
			"the daemon parses nothing that an agent or a model sends except canonical calls from shims"},
		{"agentos-loop", append([]string{"internal/trusted", "internal/execution", "internal/system", "internal/control", "internal/cli"}, state...),
			"reasoning is untrusted: its process holds no code of the gate, of tools or of state"},
		{"agentos-shim", append([]string{"internal/reasoning", "internal/control", "internal/cli", "internal/execution/tool", "internal/execution/toolproc",
			"internal/trusted/gate", "internal/trusted/policy", "internal/trusted/capability", "internal/trusted/budget", "internal/trusted/audit"}, state...),
			"the shim parses what agents and models send and has no authority: it holds no policy, state or tool"},
		{"agentos-launcher", append([]string{"internal/trusted", "internal/reasoning", "internal/control", "internal/cli", "internal/client", "internal/system",
			"internal/execution/tool", "internal/execution/toolproc", "internal/execution/model", "internal/execution/shim", "internal/execution/sandbox",
			"net/http", "connectrpc.com", "github.com/modelcontextprotocol/go-sdk"}, state...),
			"the launcher may be root: it parses the launch wire and makes sandboxes, nothing else"},
		{"agentos-probe", append([]string{"internal/trusted", "internal/reasoning", "internal/control", "internal/cli", "internal/client", "internal/system", "internal/execution",
			"internal/host", "internal/api", "net/http", "connectrpc.com", "github.com/modelcontextprotocol/go-sdk"}, state...),
			"the probe stands where an agent stands and judges the rest: it shares no code with what it judges but the plan's format"},
		{"agentos-tool", append([]string{"internal/trusted", "internal/reasoning", "internal/control", "internal/cli", "internal/execution/model", "internal/execution/toolproc", "github.com/modelcontextprotocol/go-sdk"}, state...),
			"a tool's process reads what its confinement lists and nothing decides in it"},
	}
}

// forbidden checks one binary's packages against its rule.
func forbidden(module, binary string, deps []string) []Finding {
	i := slices.IndexFunc(links(), func(l link) bool { return l.binary == binary })
	if i < 0 {
		return []Finding{{"cmd/" + binary, "no rule says what it may link", "each binary has its rule in internal/guard/binaries.go"}}
	}
	var out []Finding
	for _, d := range deps {
		d = strings.TrimPrefix(d, module+"/")
		if slices.ContainsFunc(links()[i].not, func(n string) bool { return below(d, n) }) {
			out = append(out, Finding{"cmd/" + binary, "links " + d, links()[i].why})
		}
	}
	return out
}

// deps lists the packages that a binary links on linux/amd64 without cgo.
// Internal and vendored packages of the standard library are left out: they
// change with the toolchain and say nothing about us.
func deps(ctx context.Context, root, binary string) ([]string, error) {
	list, err := goList(ctx, root, nil, "-deps", "-f", "{{if .Standard}}std {{end}}{{.ImportPath}}", "./cmd/"+binary)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, line := range list {
		std, isStd := strings.CutPrefix(line, "std ")
		if isStd && (slices.Contains(strings.Split(std, "/"), "internal") || below(std, "vendor")) {
			continue
		}
		out = append(out, std)
	}
	slices.Sort(out)
	return out, nil
}

// goList runs go list with a format of one line a package.
func goList(ctx context.Context, root string, env []string, args ...string) ([]string, error) {
	out, err := goRun(ctx, root, env, append([]string{"list"}, args...)...)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' }), nil
}

func goRun(ctx context.Context, root string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(append(cmd.Environ(), "CGO_ENABLED=0"), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// listFile is where the reviewed list of a binary is, from this package.
func listFile(binary string) string { return path.Join("testdata/deps", binary+".txt") }
