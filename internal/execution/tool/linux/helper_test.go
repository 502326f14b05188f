//go:build linux

package linux

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sys/unix"

	"agentos/internal/execution/tool"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/lib/canon"
)

// tree writes files below a new folder and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for p, content := range files {
		write(t, filepath.Join(root, p), content)
	}
	return root
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fixture is a host whose files are below root, with a clock that only Pause moves.
func fixture(root string) Host {
	now := time.Unix(1_700_000_000, 0)
	h := Local()
	h.Root, h.RPM, h.Journalctl, h.Bus = root, root+"/usr/bin/rpm", root+"/usr/bin/journalctl", root+"/bus"
	h.Interval = time.Second
	h.Now = func() time.Time { return now }
	h.Pause = func(ctx context.Context, d time.Duration) error {
		now = now.Add(d)
		return ctx.Err()
	}
	h.Uname = func(u *unix.Utsname) error {
		copy(u.Sysname[:], "Linux")
		copy(u.Release[:], "6.1.0-test")
		copy(u.Version[:], "#1 SMP")
		copy(u.Machine[:], "x86_64")
		return nil
	}
	h.Statfs = func(path string, st *unix.Statfs_t) error {
		*st = unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: 1000, Bfree: 400, Bavail: 300, Files: 50, Ffree: 20}
		return nil
	}
	return h
}

func descriptor(t testing.TB, name string) tool.Descriptor {
	t.Helper()
	d, ok := catalog.Lookup(name)
	if !ok {
		t.Fatalf("no tool %q", name)
	}
	return d
}

func compile(t testing.TB, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:schema", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conforms fails unless r is within its limit and, when ok, its data follows the
// tool's output schema.
func conforms(t testing.TB, name string, r tool.Result) {
	t.Helper()
	d := descriptor(t, name)
	whole, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := canon.Object(whole); err != nil || len(c) > d.MaxResult { // what the caller makes of it
		t.Errorf("%s: canonical form of %d bytes: %v", name, len(c), err)
	}
	if len(whole) > d.MaxResult {
		t.Errorf("%s: result of %d bytes, limit %d", name, len(whole), d.MaxResult)
	}
	if r.Status != "ok" {
		if r.Error == "" || r.Data != nil {
			t.Errorf("%s: status %q with error %q, data %q", name, r.Status, r.Error, r.Data)
		}
		return
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.Data))
	if err != nil {
		t.Fatal(err)
	}
	if err := compile(t, d.OutputSchema).Validate(doc); err != nil {
		t.Errorf("%s: %v\n%.2000s", name, err, r.Data)
	}
	for _, p := range r.Truncated {
		if !resolves(doc, p) {
			t.Errorf("%s: pointer %q to nothing", name, p)
		}
	}
}

func resolves(doc any, pointer string) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch v := doc.(type) {
		case map[string]any:
			if doc = v[part]; doc == nil {
				return false
			}
		case []any:
			var i int
			if _, err := fmt.Sscanf(part, "%d", &i); err != nil || i < 0 || i >= len(v) {
				return false
			}
			doc = v[i]
		default:
			return false
		}
	}
	return true
}

// call runs a tool on h and decodes what it printed into to when it was ok.
func callTool(t testing.TB, h Host, name, args string, to any) tool.Result {
	t.Helper()
	r := Run(t.Context(), h, descriptor(t, name), []byte(args))
	conforms(t, name, r)
	if r.Status == "ok" && to != nil {
		if err := json.Unmarshal(r.Data, to); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// descriptorNamed is a descriptor that isn't in the catalogue.
func descriptorNamed(name string) tool.Descriptor {
	return tool.Descriptor{Name: name, Deadline: time.Second, MaxArgs: 1024, MaxResult: 1024}
}
