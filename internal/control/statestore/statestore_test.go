//go:build linux

package statestore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/gate"
)

func TestCommitAndVerify(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, stop := open(t, dir)
	r := mustCommit(t, s, gate.Tx{
		Entries: []audit.Entry{
			{Kind: audit.KindRunStart, At: testTime, Run: "run-1", Agent: "agent-1", Owner: 1000,
				Payloads: []audit.Payload{{Name: "goal", Media: "text/plain", Data: []byte("inspect")}}},
			intent("call-1"),
		},
		Budget: []budget.Change{reserve("call-1", 100)},
		Runs:   []gate.RunState{{Run: "run-1", Agent: "agent-1", Owner: 1000, State: "running"}},
	})
	if diff := cmp.Diff(gate.Receipt{FirstSeq: 1, Size: 3}, r); diff != "" {
		t.Error(diff)
	}
	fill(t, s, 1001) // through several bundles
	mustCommit(t, s, gate.Tx{
		Entries: []audit.Entry{outcome("call-1"), {Kind: audit.KindRunEnd, At: testTime, Run: "run-1", Agent: "agent-1", Owner: 1000, Body: map[string]any{"reason": "completed"}}},
		Budget:  []budget.Change{settle("call-1", 60)},
		Runs:    []gate.RunState{{Run: "run-1", Agent: "agent-1", Owner: 1000, State: "terminated", Reason: "completed"}},
	})
	key := s.Key()
	st, err := s.Budget(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := budget.State{Balances: []budget.Balance{
		{Key: "owner:1000", Resource: budget.Tokens, Used: 60}, {Key: "owner:1000", Resource: budget.ToolCalls, Used: 1},
		{Key: "run:run-1", Resource: budget.Tokens, Used: 60}, {Key: "run:run-1", Resource: budget.ToolCalls, Used: 1},
	}}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Error(diff)
	}
	stop()
	rep := verifyOK(t, dir, audit.Options{Key: key})
	if rep.Records != 1003 || rep.Intents != 500 || rep.Outcomes != 500 || rep.Checkpoint != 1003 {
		t.Errorf("report %+v", rep)
	}
	// Nothing was left open, so a new start records nothing.
	s, _ = open(t, dir)
	if s.tree.size != 1003 {
		t.Errorf("size after reopening: %d", s.tree.size)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, _ := open(t, dir)
	fill(t, s, 3)
	fis, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range fis {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = fi.Mode().String()
	}
	want := map[string]string{"agentos.sqlite3": "-rw-------", "agentos.sqlite3-wal": "-rw-------", "agentos.sqlite3-shm": "-rw-------",
		"audit.key": "-rw-------", "lock": "-rw-------"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOpenRefusals(t *testing.T) {
	t.Parallel()
	wide := func(t *testing.T, dir string) {
		if err := os.Chmod(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		kind  fault.Kind
		next  string
	}{
		"directory others can read": {wide, fault.Unavailable, "chmod 0700"},
		"foreign directory": {func(t *testing.T, dir string) {
			if err := os.Chown(dir, 4242, 4242); err != nil {
				t.Fatal(err)
			}
		}, fault.Unavailable, "run as user 4242, or choose a state directory of your own"},
		"symbolic link": {func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".real"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(dir+".real", dir); err != nil {
				t.Fatal(err)
			}
		}, fault.Unavailable, "name a directory, not a file or a symbolic link"},
		"key others can read": {func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, keyName), 0o644); err != nil {
				t.Fatal(err)
			}
		}, fault.Unavailable, "chmod 0600"},
		"key lost": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, keyName)); err != nil {
				t.Fatal(err)
			}
		}, fault.Corrupt, "restore audit.key from a backup; a new key could not continue this log"},
		"another key": {func(t *testing.T, dir string) {
			other := stateDir(t)
			_, stop := open(t, other)
			stop()
			copyFile(t, filepath.Join(other, keyName), filepath.Join(dir, keyName))
		}, fault.Corrupt, nextCorrupt},
		"no database": {func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, dbName), []byte("this is a text of some length, not a database at all"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, fault.Corrupt, nextCorrupt},
		"newer format": {func(t *testing.T, dir string) {
			exec(t, dir, fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations)+1))
		}, fault.Conflict, "use the agentos version that wrote it, or a newer one"},
		"foreign database": {func(t *testing.T, dir string) {
			exec(t, dir, `PRAGMA application_id = 7`)
		}, fault.Corrupt, nextCorrupt},
		"tail lost": {func(t *testing.T, dir string) {
			exec(t, dir, `DELETE FROM edge WHERE k = (SELECT max(k) FROM edge WHERE k % 2 = 0)`)
		}, fault.Corrupt, nextCorrupt},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := stateDir(t)
			s, stop := open(t, dir)
			fill(t, s, 5)
			stop()
			tt.spoil(t, dir)
			_, err := Open(t.Context(), Config{Dir: dir, Now: fixedNow})
			if fault.KindOf(err) != tt.kind {
				t.Fatalf("error %v, want kind %q", err, tt.kind)
			}
			if next := fault.NextOf(err); len(next) < len(tt.next) || next[:len(tt.next)] != tt.next {
				t.Errorf("next step %q, want %q", next, tt.next)
			}
		})
	}
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	for v := range len(migrations) {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			t.Parallel()
			dir := stateDir(t)
			if err := prepareDir(dir); err != nil {
				t.Fatal(err)
			}
			if err := createDatabase(dir); err != nil {
				t.Fatal(err)
			}
			if v > 0 {
				t.Fatal("build a database of this version with its records, then migrate it")
			}
			s, stop := open(t, dir)
			fill(t, s, 5)
			stop()
			verifyOK(t, dir, audit.Options{})
		})
	}
}

// A failed step leaves the version before it.
func TestMigrationIsAtomic(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, _ := open(t, dir)
	steps := append(append([]string{}, migrations...), `CREATE TABLE half (a); CREATE TABLE half (a);`)
	if err := migrate(t.Context(), s.conn, dir, steps); err == nil {
		t.Fatal("a broken step succeeded")
	}
	if v, err := version(t.Context(), s.conn, dir); err != nil || v != len(migrations) {
		t.Errorf("version %d, %v", v, err)
	}
	var n int
	if err := s.conn.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_master WHERE name = 'half'`).Scan(&n); err != nil || n != 0 {
		t.Errorf("half a step stayed: %d, %v", n, err)
	}
}

func TestSecondInstance(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, stop := open(t, dir)
	_, err := Open(t.Context(), Config{Dir: dir})
	if fault.KindOf(err) != fault.Conflict {
		t.Fatalf("second instance: %v", err)
	}
	if want := fmt.Sprintf("process %d uses it", os.Getpid()); !contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	fill(t, s, 11)
	verifyOK(t, dir, audit.Options{Live: true}) // reading goes on beside it
	stop()
	_, _ = open(t, dir)
}
