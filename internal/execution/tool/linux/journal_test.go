//go:build linux

package linux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentos/internal/execution/tool/catalog"
)

// field is one field of the journal export format.
type field struct{ name, value string }

// export writes one entry in the journal export format
// (https://systemd.io/JOURNAL_EXPORT_FORMATS/).
func export(b *bytes.Buffer, at time.Time, fields ...field) {
	fmt.Fprintf(b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=0123456789abcdef0123456789abcdef\n", at.UnixMicro(), at.UnixMicro()%1e9)
	for _, f := range fields {
		if strings.ContainsFunc(f.value, func(r rune) bool { return r < ' ' || r == '\ufffd' }) {
			fmt.Fprintf(b, "%s\n", f.name)
			b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(f.value))))
			fmt.Fprintf(b, "%s\n", f.value)
			continue
		}
		fmt.Fprintf(b, "%s=%s\n", f.name, f.value)
	}
	b.WriteByte('\n')
}

// journalHost is a host with a real journal file that holds the entries.
func journalHost(t *testing.T, entries []byte) Host {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("/lib/systemd/systemd-journal-remote", "--output="+dir+"/fixture.journal", "-")
	cmd.Stdin = bytes.NewReader(entries)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make journal: %v: %s", err, out)
	}
	h := fixture(dir)
	h.Journalctl, h.JournalDir = "/usr/bin/journalctl", dir
	return h
}

var journalStart = time.Unix(1_699_999_000, 0) // 1000 s before the fixture's now

func someEntries() []byte {
	var b bytes.Buffer
	at := func(s int) time.Time { return journalStart.Add(time.Duration(s) * time.Second) }
	unit := field{"_SYSTEMD_UNIT", "a.service"}
	export(&b, at(0), unit, field{"MESSAGE", "first"}, field{"PRIORITY", "3"}, field{"_PID", "42"}, field{"SYSLOG_IDENTIFIER", "ident"})
	export(&b, at(1), unit, field{"MESSAGE", "two\nlines\x1b[31m \xff\u202e"}, field{"PRIORITY", "6"}, field{"_COMM", "comm"})
	export(&b, at(2), field{"_SYSTEMD_UNIT", "b.service"}, field{"MESSAGE", "SECRET of another unit"})
	export(&b, at(3), unit, field{"MESSAGE", strings.Repeat("L", 9000)}, field{"PRIORITY", "99"}, field{"_PID", "-1"})
	export(&b, at(900), unit, field{"MESSAGE", "recent"}, field{"MESSAGE", "again"}, field{"PRIORITY", "4"}, field{"PASSWORD", "canary"})
	return b.Bytes()
}

func TestJournalRead(t *testing.T) {
	t.Parallel()
	h := journalHost(t, someEntries())
	recent := entryDoc{Time: "2023-11-14T22:11:40.000000Z", Priority: "warning", Message: "recent"}
	large := entryDoc{Time: "2023-11-14T21:56:43.000000Z"}
	two := entryDoc{Time: "2023-11-14T21:56:41.000000Z", Priority: "info", Identifier: "comm", Message: "two\nlines\ufffd[31m \ufffd\ufffd"}
	first := entryDoc{Time: "2023-11-14T21:56:40.000000Z", Priority: "err", Identifier: "ident", PID: 42, Message: "first"}
	for name, c := range map[string]struct {
		args      string
		want      []entryDoc
		truncated []string
	}{
		"all":      {`{"unit":"a.service"}`, []entryDoc{recent, large, two, first}, []string{"/entries/1/message"}},
		"lines":    {`{"unit":"a.service","lines":1}`, []entryDoc{recent}, nil},
		"since":    {`{"unit":"a.service","since_minutes":5}`, []entryDoc{recent}, nil},
		"priority": {`{"unit":"a.service","priority":"err"}`, []entryDoc{first}, nil},
		"none":     {`{"unit":"c.service"}`, []entryDoc{}, nil},
	} {
		var got journalDoc
		r := callTool(t, h, catalog.JournalRead, c.args, &got)
		if r.Status != "ok" {
			t.Errorf("%s: %+v", name, r)
		}
		if diff := cmp.Diff(c.want, got.Entries, cmpopts.IgnoreUnexported(entryDoc{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(c.truncated, r.Truncated); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A corrupt file beside a good one is passed over, and the result says so.
func TestJournalReadPartly(t *testing.T) {
	t.Parallel()
	h := journalHost(t, someEntries())
	write(t, h.JournalDir+"/bad.journal", strings.Repeat("no journal", 1000))
	var got journalDoc
	callTool(t, h, catalog.JournalRead, `{"unit":"a.service"}`, &got)
	if len(got.Entries) != 4 || !strings.Contains(got.Warning, "bad.journal") {
		t.Errorf("%+v", got)
	}
}

func TestJournalReadLarge(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for i := range 300 {
		export(&b, journalStart.Add(time.Duration(i)*time.Second), field{"_SYSTEMD_UNIT", "a.service"},
			field{"MESSAGE", fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000))})
	}
	var got journalDoc
	r := callTool(t, journalHost(t, b.Bytes()), catalog.JournalRead, `{"unit":"a.service","lines":200}`, &got)
	if diff := cmp.Diff([]string{"/entries"}, r.Truncated); diff != "" {
		t.Error(diff)
	}
	if n := len(got.Entries); n < 50 || n >= 200 || !strings.HasPrefix(got.Entries[0].Message, "299 ") {
		t.Errorf("%d entries, newest %.20q", n, got.Entries[0].Message)
	}
}

func TestJournalUnavailable(t *testing.T) {
	t.Parallel()
	empty := fixture(t.TempDir())
	absent := empty
	absent.Journalctl = "/nonexistent/journalctl"
	empty.Journalctl = "/usr/bin/journalctl"
	corrupt := fixture(tree(t, map[string]string{"j/x.journal": strings.Repeat("no journal", 1000)}))
	corrupt.Journalctl, corrupt.JournalDir = "/usr/bin/journalctl", corrupt.Root+"/j"
	for name, h := range map[string]Host{"no program": absent, "no journal": empty} {
		if r := callTool(t, h, catalog.JournalRead, `{"unit":"a.service"}`, nil); r.Status != "unavailable" || r.Next == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := callTool(t, corrupt, catalog.JournalRead, `{"unit":"a.service"}`, nil); r.Status != "error" || r.Next == "" {
		t.Errorf("corrupt: %+v", r)
	}
}

// A program that never ends is killed when the deadline passes, and one that
// floods is stopped at the bound.
func TestJournalProgramMisbehaves(t *testing.T) {
	t.Parallel()
	h := journalHost(t, someEntries())
	script := func(body string) string {
		p := t.TempDir() + "/journalctl"
		if err := exec.Command("install", "-m755", "/dev/null", p).Run(); err != nil {
			t.Fatal(err)
		}
		write(t, p, "#!/bin/sh\n"+body+"\n")
		return p
	}
	d := descriptor(t, catalog.JournalRead)
	d.Deadline = 200 * time.Millisecond
	h.Journalctl = script("exec sleep 600")
	if r := Run(t.Context(), h, d, []byte(`{"unit":"a.service"}`)); r.Status != "error" || !strings.Contains(r.Error, "deadline") {
		t.Errorf("sleeper: %+v", r)
	}
	h.Journalctl = script(`exec yes '{"MESSAGE":"x"}'`)
	var got journalDoc
	callTool(t, h, catalog.JournalRead, `{"unit":"a.service","lines":5}`, &got)
	if got.Malformed != 6 || len(got.Entries) != 0 {
		t.Errorf("flood of malformed: %+v", got)
	}
	h.Journalctl = script(`exec yes '{"MESSAGE":"x","__REALTIME_TIMESTAMP":"5"}'`)
	got = journalDoc{}
	if callTool(t, h, catalog.JournalRead, `{"unit":"a.service","lines":5}`, &got); len(got.Entries) != 5 {
		t.Errorf("flood: %+v", got)
	}
	h.Journalctl = script(`exec tr '\0' x </dev/zero`)
	if r := callTool(t, h, catalog.JournalRead, `{"unit":"a.service"}`, nil); r.Status != "error" {
		t.Errorf("endless line: %+v", r)
	}
	h.Journalctl = script(`env >&2; exit 3`)
	r := callTool(t, h, catalog.JournalRead, `{"unit":"a.service"}`, nil)
	if r.Status != "error" || !strings.Contains(r.Error, "LC_ALL") || strings.Contains(r.Error, "HOME=") {
		t.Errorf("environment: %+v", r)
	}
}

func TestParseEntry(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":"a"}`:                   "a",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":[104,105,27]}`:          "hi\ufffd",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":["a","b"]}`:             "a",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":[[104,105],"b"]}`:       "hi",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":null}`:                  "",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":[300]}`:                 "",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":[1.5]}`:                 "",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":[[["x"]]]}`:             "",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":{"a":1}}`:               "",
		`{"__REALTIME_TIMESTAMP":"5","MESSAGE":[]}`:                    "",
		`{"__REALTIME_TIMESTAMP":"5"}`:                                 "",
		`{"__REALTIME_TIMESTAMP":"-5","MESSAGE":"a"}`:                  "!",
		`{"__REALTIME_TIMESTAMP":"9223372036854775807","MESSAGE":"a"}`: "!",
		`{"__REALTIME_TIMESTAMP":5,"MESSAGE":"a"}`:                     "!",
		`{"MESSAGE":"a"}`: "!", `[]`: "!", `x`: "!", "{\"MESSAGE\":\"\xff\"}": "!",
		`{"MESSAGE":"a","MESSAGE":"b","__REALTIME_TIMESTAMP":"5"}`: "!",
	} {
		e, err := parseEntry([]byte(in))
		if (err != nil) != (want == "!") || err == nil && e.Message != want {
			t.Errorf("%s: %+v, %v", in, e, err)
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"5","MESSAGE":[104,105],"PRIORITY":"3","_PID":"7","SYSLOG_IDENTIFIER":["a","b"]}`))
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1700000000000000","MESSAGE":[[1],null]}`))
	schema := compile(f, descriptor(f, catalog.JournalRead).OutputSchema)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &journalDoc{Unit: "a.service", Entries: []entryDoc{}}
		if err := d.parse(bytes.NewReader(b), 10); err != nil && err != errEnough {
			return
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(fit(d, catalog.DefaultLimit).Data))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Error(err)
		}
	})
}
