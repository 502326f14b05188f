package guard

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

const root = "../.."

// TestTree runs every check on this repository.
func TestTree(t *testing.T) {
	t.Parallel()
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for _, f := range c.Run(tree) {
				t.Error(f)
			}
		})
	}
}

// TestChecksCanFail gives each check the trees it must refuse. An archive is
// named check-case.txtar; its file "want" lists the findings without reasons.
func TestChecksCanFail(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	for _, name := range archives {
		check, _, _ := strings.Cut(filepath.Base(name), "-")
		covered[check] = true
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			want, tree := unpack(t, name)
			i := slices.IndexFunc(Checks(), func(c Check) bool { return c.Name == check })
			if i < 0 {
				t.Fatalf("no check %q", check)
			}
			var got []string
			for _, f := range Checks()[i].Run(tree) {
				got = append(got, f.Where+": "+f.Msg)
				if f.Why == "" {
					t.Errorf("%s: finding has no reason", f.Where)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if len(want) == 0 {
				t.Error("archive wants no finding: it shows nothing")
			}
		})
	}
	for _, c := range Checks() {
		if !covered[c.Name] {
			t.Errorf("check %q has no bad tree: nothing shows that it can fail", c.Name)
		}
	}
}

// TestGoodTree shows that the findings of the bad trees are not found anywhere.
func TestGoodTree(t *testing.T) {
	t.Parallel()
	_, tree := unpack(t, "testdata/good.txtar")
	for _, c := range Checks() {
		for _, f := range c.Run(tree) {
			t.Errorf("%s: %v", c.Name, f)
		}
	}
}

func unpack(t *testing.T, name string) (want []string, tree *Tree) {
	t.Helper()
	a, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "go.mod", []byte("module agentos\n"))
	for _, f := range a.Files {
		if f.Name == "want" {
			for line := range strings.Lines(string(f.Data)) {
				want = append(want, strings.TrimSpace(line))
			}
			continue
		}
		// A tilde cuts words that no file of this tree may hold.
		write(t, dir, f.Name, bytes.ReplaceAll(f.Data, []byte("~"), nil))
	}
	slices.Sort(want)
	tree, err = Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return want, tree
}

func write(t *testing.T, dir, rel string, data []byte) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(rel))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
