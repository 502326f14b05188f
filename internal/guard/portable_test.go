package guard

import (
	"context"
	"testing"
)

// buildPortable builds the portable packages of a tree for one platform.
func buildPortable(ctx context.Context, tree *Tree, goos, goarch string) error {
	args := []string{"build"}
	for _, p := range tree.Packages {
		if Portable(p.Dir) && len(p.code()) > 0 {
			args = append(args, "./"+p.Dir)
		}
	}
	_, err := goRun(ctx, tree.Root, []string{"GOOS=" + goos, "GOARCH=" + goarch}, args...)
	return err
}

// TestPortable builds the portable packages for the platforms that the rest of
// the tree doesn't run on. Spec: INV-13, SYS-04.
func TestPortable(t *testing.T) {
	t.Parallel()
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range [][2]string{{"windows", "amd64"}, {"darwin", "arm64"}} {
		t.Run(p[0]+"/"+p[1], func(t *testing.T) {
			t.Parallel()
			if err := buildPortable(t.Context(), tree, p[0], p[1]); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPortableCanFail builds a package that uses a Linux call.
func TestPortableCanFail(t *testing.T) {
	t.Parallel()
	_, tree := unpack(t, "testdata/unportable.txtar")
	if err := buildPortable(t.Context(), tree, "linux", "amd64"); err != nil {
		t.Fatalf("the fixture must build on linux: %v", err)
	}
	if err := buildPortable(t.Context(), tree, "windows", "amd64"); err == nil {
		t.Error("a package that uses a Linux call built for windows")
	}
}
