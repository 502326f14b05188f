package manual

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"agentos/internal/cli"
	"agentos/internal/cli/clitest"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"

	"github.com/spf13/cobra"
)

// The list here, the page and the code agree.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/spec/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[int]bool{}
	for i, c := range Codes() {
		listed[c.n] = true
		if row := fmt.Sprintf("\n| %d | %s | %s |\n", c.n, c.name, c.help); !strings.Contains(string(page), row) {
			t.Errorf("the page lacks %q", row)
		}
		if i > 0 && Codes()[i-1].n >= c.n {
			t.Errorf("%d is out of order", c.n)
		}
	}
	if got := strings.Count(string(page), "\n| ") - 2; got != len(Codes()) {
		t.Errorf("the page has %d rows, want %d", got, len(Codes()))
	}
	for n := range 256 {
		if r := endreason.FromExitCode(n); r != endreason.Crashed && !listed[n] {
			t.Errorf("end reason %s has exit code %d, which is not listed", r, n)
		}
	}
	for _, k := range []fault.Kind{fault.Usage, fault.Denied, fault.NotFound, fault.Unavailable, fault.Limit, fault.Timeout,
		fault.Cancelled, fault.Conflict, fault.Corrupt, fault.Malformed, fault.Internal} {
		if !listed[k.ExitCode()] {
			t.Errorf("kind %s has exit code %d, which is not listed", k, k.ExitCode())
		}
	}
}

func TestManPage(t *testing.T) {
	t.Parallel()
	e, _ := clitest.Env(0)
	root := cli.Root(e)
	sub := &cobra.Command{Use: "do THING", Short: "Do a thing's thing", Long: "First.\n\n.second starts with a dot\\", Example: "  agentos do -x", RunE: func(*cobra.Command, []string) error { return nil }}
	sub.Flags().StringP("file", "f", "", "read `FILE`")
	root.AddCommand(sub)
	page := roff(sub)
	for _, want := range []string{`.TH "AGENTOS-DO" 1`, `agentos\-do \- Do a thing\(aqs thing`, "First.\n.PP\n\\&.second starts with a dot\\e", ".B \\-f, \\-\\-file FILE\nread FILE", ".SH GLOBAL OPTIONS", "\\-\\-state\\-dir DIR", ".BR agentos (1)\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("missing %q in\n%s", want, page)
		}
	}
	if page := roff(root); !strings.Contains(page, ".SH EXIT STATUS") || !strings.Contains(page, ".BR agentos\\-do (1)") {
		t.Errorf("root page:\n%s", page)
	}
}
