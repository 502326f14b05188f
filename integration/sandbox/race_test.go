//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// swap exchanges two names for each other until stop, as fast as it can.
func swap(a, b string) (stop func() int64) {
	var n atomic.Int64
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
				if unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) == nil {
					n.Add(1)
				}
			}
		}
	}()
	return func() int64 { close(quit); <-done; return n.Load() }
}

// While the sandbox is made, somebody swaps a granted folder for a link to what
// isn't granted. Nothing of that may ever be seen inside; a refusal is as good as
// the right folder.
func TestSwapWhileStarting(t *testing.T) {
	as(t, func(t *testing.T, w *trial) {
		for _, flag := range []string{"--ro", "--rw"} {
			t.Run(flag, func(t *testing.T) {
				granted, link := filepath.Join(w.home, "granted"+flag), filepath.Join(w.home, "link"+flag)
				w.put(filepath.Join(granted, "secret.txt"), "harmless\n", 0o644)
				must(t, os.Symlink(filepath.Dir(w.targets.Secret), link))
				if root() {
					must(t, os.Lchown(link, w.uid, w.uid))
				}
				stop := swap(granted, link)
				// The control: without a sandbox the link is followed.
				followed := false
				for range 10000 {
					b, _ := os.ReadFile(filepath.Join(granted, "secret.txt"))
					if followed = strings.Contains(string(b), w.targets.Canary); followed {
						break
					}
				}
				ran, refused := 0, 0
				for range 12 {
					r := finish(t, command(t.Context(), w.uid, w.home, w.targets.Workspace, agentos(), "run", flag, granted, "--", "cat", filepath.Join(granted, "secret.txt")))
					switch {
					case strings.Contains(r.out, w.targets.Canary):
						t.Errorf("HOLE: %s %s shows what a link swapped in leads to: %s", flag, granted, r.err)
					case r.code == 0:
						ran++
					default:
						refused++
					}
				}
				n := stop()
				t.Logf("%d swaps, %d runs, %d refusals", n, ran, refused)
				if !followed || n < 100 {
					t.Errorf("the control shows nothing: followed %v, %d swaps", followed, n)
				}
			})
		}
	})
}

// An agent leaves a link behind in its workspace where a later run's grant is.
func TestLinkLeftForTheNextRun(t *testing.T) {
	as(t, func(t *testing.T, w *trial) {
		planted := filepath.Join(w.targets.Workspace, "notes")
		must(t, os.Symlink(filepath.Dir(w.targets.Files["ssh key"]), planted))
		for _, args := range [][]string{{"--ro", planted}, {"--rw", planted}, {"--rw", w.targets.Workspace, "--ro", planted}} {
			cmd := append(append([]string{"run"}, args...), "--", "cat", filepath.Join(planted, "id_ed25519"))
			r := finish(t, command(t.Context(), w.uid, w.home, w.targets.Workspace, agentos(), cmd...))
			if strings.Contains(r.out, w.targets.Canary) {
				t.Errorf("HOLE: %q shows what a link in the workspace leads to: %s", args, r.err)
			}
		}
	})
}
