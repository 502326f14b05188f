//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentos/integration/sandbox/attempt"
)

const page = "../../docs/escape-suite.md"

const intro = `# The escape suite

What an agent may try to get out of ` + "`agentos run`" + `, and what stops it. Written by
` + "`go test ./integration/sandbox -run TestEscape -update`" + ` as root; the test itself fails on every attempt that works
inside and isn't listed as a gap, on every attempt whose control outside doesn't work, and on every attempt for which no
layer is found. Errors are those of the kernel at the last step; with no path or process in sight that is ENOENT or ESRCH.

*outside*: as an ordinary user; *as root*: in mounts of its own. *stopped by each of*: with this layer alone, put on by
the suite over the namespaces and groups of a running sandbox, the attempt already fails. *only by*: with all other layers
on and this one off, it works; an empty cell means that a second layer stops it. Rootless runs have a user namespace
besides and no UID of their own.

`

// document writes the page, or checks that it tells of the same attempts and
// gaps.
func document(t *testing.T, rows []row) {
	if !*update {
		b, err := os.ReadFile(page)
		must(t, err)
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^\| ([^|*-][^|]*) \|`).FindAllStringSubmatch(string(b), -1) {
			if m[1] != "attempt" {
				names = append(names, m[1])
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, attempt.Names()) {
			t.Errorf("%s tells of other attempts: run with -update and review the diff", page)
		}
		return
	}
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "%d attempts.\n\n| attempt | outside | as root | inside, full | inside, rootless | stopped by each of | only by |\n| --- | --- | --- | --- | --- | --- | --- |\n", len(rows))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.name, strings.Join(r.cells, " | "), r.stops, r.needed)
	}
	b.WriteString("\n## Gaps\n\n")
	for _, name := range attempt.Names() {
		for _, place := range []string{full, rootless} {
			if why := gaps("nothing on this host enforces pids, memory")[name][place]; why != "" {
				fmt.Fprintf(&b, "- *%s*, %s: %s.\n", name, place, why)
			}
		}
	}
	must(t, os.WriteFile(filepath.FromSlash(page), []byte(b.String()), 0o644))
}
