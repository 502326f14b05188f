package guard

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/deps")

func binaries(t *testing.T) []string {
	t.Helper()
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range mains {
		out = append(out, filepath.Base(filepath.Dir(m)))
	}
	return out
}

// TestBinaries compares what each binary links with its rule and with its
// reviewed list. Spec: INV-13.
func TestBinaries(t *testing.T) {
	t.Parallel()
	module, err := moduleOf(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := filepath.Glob("testdata/deps/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		if b := strings.TrimSuffix(filepath.Base(l), ".txt"); !slices.Contains(binaries(t), b) {
			t.Errorf("%s lists a binary that is not in cmd", l)
		}
	}
	for _, b := range binaries(t) {
		t.Run(b, func(t *testing.T) {
			t.Parallel()
			got, err := deps(t.Context(), root, b)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range forbidden(module, b, got) {
				t.Error(f)
			}
			text := strings.Join(got, "\n") + "\n"
			if *update {
				if err := os.WriteFile(listFile(b), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(listFile(b))
			if err != nil {
				t.Fatalf("no reviewed list: %v (run make deps and review it)", err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
				t.Errorf("%s links other packages than its reviewed list (-list +linked); if that is meant, run make deps and commit the diff:\n%s", b, diff)
			}
		})
	}
}

// TestForbiddenCanFail shows the rule of each binary refuse each of its entries.
func TestForbiddenCanFail(t *testing.T) {
	t.Parallel()
	for _, l := range links() {
		for _, n := range l.not {
			dep := n + "/x"
			if strings.HasPrefix(n, "internal/") {
				dep = "agentos/" + dep
			}
			if got := forbidden("agentos", l.binary, []string{"fmt", dep}); len(got) != 1 {
				t.Errorf("%s linking %s: %d findings, want 1", l.binary, dep, len(got))
			}
			if got := forbidden("agentos", l.binary, []string{"fmt", n + "x"}); len(got) != 0 {
				t.Errorf("%s linking %sx: %v", l.binary, n, got)
			}
		}
	}
	if got := forbidden("agentos", "unknown", nil); len(got) != 1 {
		t.Error("a binary without a rule was accepted")
	}
}
