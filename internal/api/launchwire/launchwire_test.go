package launchwire

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentos/internal/lib/sandboxplan"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	plan := sandboxplan.Plan{
		Version: sandboxplan.Version, Run: "r1", Strength: sandboxplan.Full, Command: []string{"sh", "-c", "<&>\u2028"},
		Env: []string{"A=b"}, Dir: "/w", TTY: true, Rows: 24, Cols: 80, Hostname: "h", Nested: true,
		Identity: sandboxplan.Identity{UID: 5, GID: 6, OwnerUID: 7, OwnerGID: 8, User: "a", Home: "/h"},
		Mounts:   []sandboxplan.Mount{{Kind: sandboxplan.Bind, Source: "/usr", Target: "/usr", Write: true, Exec: true, Owned: true, Optional: true, SizeBytes: 1, Why: "w"}},
		Files:    []sandboxplan.File{{Path: "/etc/x", Data: "d\n", Why: "w"}},
		Limits:   sandboxplan.Limits{PIDs: 1, MemoryBytes: 2, CPUPercent: 3, OpenFiles: 4, FileBytes: 5, TmpBytes: 6},
	}
	for _, r := range []Request{{Start: &Start{plan}}, {Stop: &Stop{"r1"}}, {Ping: &Ping{}}} {
		b, err := EncodeRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRequest(b)
		if err != nil || cmp.Diff(r, got) != "" {
			t.Error(err, cmp.Diff(r, got))
		}
	}
	for _, r := range []Reply{
		{Started: &Started{Run: "r", PID: 3, Cgroup: []string{"/c"}, Missing: []string{"cpu"}, Layers: []string{"seccomp"}}},
		{Exited: &Exited{Run: "r", Code: -1, Signal: 9, CPUMS: 4, MaxRSS: 5}},
		{Failed: &Failed{Run: "r", Kind: "denied", Message: "m", Next: "n", Step: "s"}},
		{Pong: &Pong{PID: 1, Root: true}},
	} {
		b, err := EncodeReply(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeReply(b)
		if err != nil || cmp.Diff(r, got) != "" {
			t.Error(err, cmp.Diff(r, got))
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]string{
		"empty":          "",
		"not json":       "x",
		"nothing set":    `{}`,
		"two set":        `{"ping":{},"stop":{"run":"r"}}`,
		"unknown member": `{"ping":{},"exec":{}}`,
		"unknown inside": `{"stop":{"run":"r","force":true}}`,
		"in the plan":    `{"start":{"plan":{"privileged":true}}}`,
		"twice":          `{"stop":{"run":"r"},"stop":{"run":"s"}}`,
		"other case":     `{"Ping":{}}`,
		"null":           `{"ping":null}`,
		"two documents":  `{"ping":{}}{"ping":{}}`,
		"wrong type":     `{"stop":{"run":1}}`,
		"negative uid":   `{"start":{"plan":{"Identity":{"UID":-1}}}}`,
		"too long":       `{"stop":{"run":"` + strings.Repeat("r", MaxMessage) + `"}}`,
	} {
		if r, err := DecodeRequest([]byte(b)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		if r, err := DecodeReply([]byte(b)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s as reply: %+v %v", name, r, err)
		}
	}
	for _, r := range []Request{{}, {Ping: &Ping{}, Stop: &Stop{}}, {Stop: &Stop{strings.Repeat("r", MaxMessage)}}} {
		if _, err := EncodeRequest(r); !errors.Is(err, ErrFormat) {
			t.Errorf("encoded %.80v: %v", r, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"stop":{"run":"r"}}`))
	f.Add([]byte(`{"start":{"plan":{"version":1,"run":"r","mounts":[{"kind":"bind","target":"/"}]}}}`))
	f.Add([]byte(`{"failed":{"run":"r","kind":"denied","message":"m"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeRequest(b); err == nil {
			again, err := EncodeRequest(r)
			if err != nil {
				return // escapes may make it longer than the limit
			}
			if r2, err := DecodeRequest(again); err != nil || cmp.Diff(r, r2, cmpopts.EquateEmpty()) != "" {
				t.Fatal("round trip", err)
			}
		}
		_, _ = DecodeReply(b)
	})
}
