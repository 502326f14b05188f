//go:build linux

package statestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/gate"
)

// tmpfs mounts a filesystem of its own, with a size for mount(8).
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount tmpfs (needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// A full disk refuses commits with a next step and loses nothing; with room
// again the same store goes on.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	mnt := tmpfs(t, "32m")
	dir := filepath.Join(mnt, "state")
	s, stop := open(t, dir)
	filler := filepath.Join(mnt, "filler")
	big := make([]byte, 256<<10)
	if _, err := rand.Read(big); err != nil {
		t.Fatal(err)
	}
	acked := 0
	commit := func(call string) error {
		big[0]++
		e := intent(call)
		e.Payloads = []audit.Payload{{Name: "args", Media: "text/plain", Data: bytes.Clone(big)}}
		_, err := s.Commit(t.Context(), gate.Tx{Entries: []audit.Entry{e}})
		if err == nil {
			acked++
		}
		return err
	}
	for round := range 3 {
		var fs unix.Statfs_t
		if err := unix.Statfs(mnt, &fs); err != nil {
			t.Fatal(err)
		}
		room := int64(fs.Bavail)*fs.Bsize - 2<<20
		if err := os.WriteFile(filler, make([]byte, room), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		for i := 0; err == nil && i < 200; i++ {
			err = commit(fmt.Sprintf("call-%d-%d", round, i))
		}
		if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.NextOf(err), "free space") {
			t.Fatalf("round %d, on a full disk: %v (%s), next %q", round, err, fault.KindOf(err), fault.NextOf(err))
		}
		if int(s.tree.size) != acked+1 {
			t.Errorf("round %d: %d records, %d acknowledged", round, s.tree.size, acked)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := commit(fmt.Sprintf("call-%d-again", round)); err != nil {
			t.Fatalf("round %d, with room again: %v", round, err)
		}
	}
	stop()
	rep := verifyOK(t, dir, audit.Options{Live: true})
	if int(rep.Intents) != acked {
		t.Errorf("%d intents, %d acknowledged", rep.Intents, acked)
	}
}

// A disk without room for the first file says so.
func TestOpenOnFullDisk(t *testing.T) {
	t.Parallel()
	mnt := tmpfs(t, "64k")
	_, err := Open(t.Context(), Config{Dir: filepath.Join(mnt, "state")})
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.NextOf(err), "free space") {
		t.Errorf("got %v, next %q", err, fault.NextOf(err))
	}
}

// listing names all files of a directory with their sizes.
func listing(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = fi.Size()
	}
	return out
}

func TestReadOnlyMedium(t *testing.T) {
	t.Parallel()
	mnt := tmpfs(t, "32m")
	rest, crashed := filepath.Join(mnt, "rest"), filepath.Join(mnt, "crashed")
	s, stop := open(t, rest)
	fill(t, s, 301)
	copyDir(t, rest, crashed) // a copy in flight: its last commits are in the WAL
	stop()
	if err := unix.Mount("", mnt, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	before := listing(t, rest)
	rep := verifyOK(t, rest, audit.Options{})
	if rep.Records != 301 {
		t.Errorf("%d records", rep.Records)
	}
	if diff := cmp.Diff(before, listing(t, rest)); diff != "" {
		t.Error(diff)
	}
	if _, err := Open(t.Context(), Config{Dir: rest}); fault.KindOf(err) != fault.Unavailable || fault.NextOf(err) == "" {
		t.Errorf("open for writing: %v", err)
	}
	_, err := OpenReadOnly(t.Context(), crashed)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.NextOf(err), "copy the directory") {
		t.Errorf("read-only with a WAL: %v", err)
	}
}

func TestOpenReadOnlyRefusals(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	if _, err := OpenReadOnly(t.Context(), dir); fault.KindOf(err) != fault.NotFound {
		t.Errorf("no directory: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReadOnly(t.Context(), dir); fault.KindOf(err) != fault.NotFound {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := OpenReadOnly(t.Context(), "state"); fault.KindOf(err) != fault.Usage {
		t.Errorf("relative path: %v", err)
	}
	_, stop := open(t, dir)
	stop()
	exec(t, dir, fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations)+1))
	if _, err := OpenReadOnly(t.Context(), dir); fault.KindOf(err) != fault.Conflict {
		t.Errorf("newer format: %v", err)
	}
}

// Bytes of the database change at seeded places: reading and verifying end with
// an error or a named record, or every record is as it was.
func TestCorruptBytes(t *testing.T) {
	t.Parallel()
	origin := stateDir(t)
	s, stop := open(t, origin)
	fill(t, s, 701)
	key := s.Key()
	saved, _, err := s.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	want := load(t, origin).records
	db, err := os.ReadFile(filepath.Join(origin, dbName))
	if err != nil {
		t.Fatal(err)
	}
	faults, named, harmless := 0, 0, 0
	for seed := range uint64(250) {
		rng := mrand.New(mrand.NewPCG(seed, 14))
		bad := bytes.Clone(db)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(bad))
			if seed%5 == 0 {
				at = rng.IntN(120) // the header
			}
			bad[at] ^= byte(1 + rng.IntN(255))
		}
		dir := filepath.Join(t.TempDir(), "state")
		copyDir(t, origin, dir)
		if err := os.WriteFile(filepath.Join(dir, dbName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		got, problem, err := readAll(t.Context(), dir, audit.Options{Key: key, Older: [][]byte{saved}})
		switch {
		case err != nil:
			faults++
			if fault.KindOf(err) == fault.Internal && !strings.Contains(err.Error(), "read") && !strings.Contains(err.Error(), "verify") {
				t.Errorf("seed %d: %v", seed, err)
			}
		case problem != nil:
			named++
		case len(got) != len(want):
			t.Errorf("seed %d: verified with %d of %d records", seed, len(got), len(want))
		default:
			harmless++
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("seed %d: record %d changed and the log verified", seed, i)
				}
			}
		}
	}
	t.Logf("%d faults, %d named, %d harmless", faults, named, harmless)
	if faults == 0 || named == 0 || harmless == 0 {
		t.Error("the seeds miss a case")
	}
}

func readAll(ctx context.Context, dir string, opts audit.Options) (records [][]byte, p *audit.Problem, err error) {
	r, err := OpenReadOnly(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	rep, err := r.Verify(ctx, opts)
	if err != nil || rep.First != nil {
		return nil, rep.First, err
	}
	for it, err := range r.Log(ctx, Filter{}) {
		if err != nil {
			return nil, nil, err
		}
		records = append(records, it.Raw)
	}
	return records, nil, nil
}
