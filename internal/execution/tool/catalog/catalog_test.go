package catalog

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentos/internal/execution/tool"
)

var update = flag.Bool("update", false, "rewrite docs/spec/tools.md")

func readOnly(t *testing.T) []tool.Descriptor {
	t.Helper()
	list, err := ReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// noLoader refuses every reference to another document.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("load %q: refused", url) }

func compile(schema []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	if err := c.AddResource("mem:schema", doc); err != nil {
		return nil, err
	}
	return c.Compile("mem:schema")
}

func TestDescriptors(t *testing.T) {
	t.Parallel()
	var got []string
	for _, d := range readOnly(t) {
		got = append(got, d.Name)
		if d.Effect != tool.Read {
			t.Errorf("%s: effect %q", d.Name, d.Effect)
		}
		if d.MaxArgs <= 0 || d.MaxArgs > DefaultLimit || d.MaxResult <= 0 || d.MaxResult > DefaultLimit {
			t.Errorf("%s: limits %d, %d", d.Name, d.MaxArgs, d.MaxResult)
		}
		if d.Deadline < time.Second || d.Deadline > 30*time.Second {
			t.Errorf("%s: deadline %s", d.Name, d.Deadline)
		}
		if d.Description == "" {
			t.Errorf("%s: no description", d.Name)
		}
		if l, ok := Lookup(d.Name); !ok || l.Name != d.Name {
			t.Errorf("lookup %q: %v", d.Name, ok)
		}
	}
	want := []string{"system_inspect", "npu_inspect", "package_query", "service_inspect", "journal_read"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, ok := Lookup("shell"); ok {
		t.Error("found a tool that isn't there")
	}
}

func TestSchemasCompileAndAreStrict(t *testing.T) {
	t.Parallel()
	for _, d := range readOnly(t) {
		for kind, s := range map[string][]byte{"input": d.InputSchema, "output": d.OutputSchema} {
			if _, err := compile(s); err != nil {
				t.Errorf("%s %s: %v", d.Name, kind, err)
			}
			var doc map[string]any
			if err := json.Unmarshal(s, &doc); err != nil {
				t.Fatal(err)
			}
			if doc["$schema"] != "https://json-schema.org/draft/2020-12/schema" || doc["type"] != "object" {
				t.Errorf("%s %s: not an object schema of draft 2020-12", d.Name, kind)
			}
			for _, fault := range loose(doc, "") {
				t.Errorf("%s %s: %s", d.Name, kind, fault)
			}
		}
	}
}

// The check of strictness itself finds each kind of looseness.
func TestLoose(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"type":"object","properties":{}}`:                                                                     "open object",
		`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"string"}}}`:                   "unbounded string",
		`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"array"}}}`:                    "unbounded array",
		`{"type":"object","additionalProperties":false,"properties":{"a":{}}}`:                                  "untyped",
		`{"type":"object","additionalProperties":false,"required":["b"],"properties":{"a":{"type":"integer"}}}`: "requires unknown",
		`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"http://x"}}}`:                 "reference",
	} {
		var d map[string]any
		if err := json.Unmarshal([]byte(doc), &d); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(loose(d, ""), "; "); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", doc, got, want)
		}
	}
}

// loose lists where a schema lets something unbounded through.
func loose(s map[string]any, at string) []string {
	var out []string
	say := func(what string) { out = append(out, fmt.Sprintf("%s at %q", what, at)) }
	if _, ok := s["$ref"]; ok {
		say("reference")
	}
	switch s["type"] {
	case "object":
		if s["additionalProperties"] != false {
			say("open object")
		}
		props, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for _, r := range required {
			if _, ok := props[r.(string)]; !ok {
				say(fmt.Sprintf("requires unknown %q", r))
			}
		}
		for name, p := range props {
			out = append(out, loose(p.(map[string]any), at+"/"+name)...)
		}
	case "array":
		items, ok := s["items"].(map[string]any)
		if _, max := s["maxItems"]; !max || !ok {
			say("unbounded array")
			break
		}
		out = append(out, loose(items, at+"/*")...)
	case "string":
		if _, ok := s["maxLength"]; !ok {
			say("unbounded string")
		}
	case "integer", "number", "boolean":
	default:
		if _, ok := s["enum"]; !ok {
			say("untyped")
		}
	}
	return out
}

const page = "../../../../docs/spec/tools.md"

// TestSpecPage keeps docs/spec/tools.md what the catalogue says; -update writes it.
func TestSpecPage(t *testing.T) {
	want := specPage(readOnly(t))
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/spec/tools.md is not what the catalogue says; run this test with -update\n%s", diff)
	}
}

func specPage(list []tool.Descriptor) string {
	var b strings.Builder
	b.WriteString(specHead)
	b.WriteString("| tool | effect | deadline | arguments | result | allow-listed argument |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, d := range list {
		allow := d.Allowlist
		if allow == "" {
			allow = "none"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d bytes | %d bytes | %s |\n", d.Name, d.Effect, d.Deadline, d.MaxArgs, d.MaxResult, allow)
	}
	for _, d := range list {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n### Arguments\n\n```json\n%s```\n\n### Data\n\n```json\n%s```\n", d.Name, d.Description, d.InputSchema, d.OutputSchema)
	}
	return b.String()
}

const specHead = `# Built-in read-only tools

Generated from ` + "`internal/execution/tool/catalog`" + ` by its test (` + "`go test ./internal/execution/tool/catalog -run TestSpecPage -update`" + `). Spec: OSA-05.

Each call is one process, ` + "`agentos-tool NAME`" + `, under a user of its own: the arguments come as one JSON object on standard input, standard output gets one result document and a line end. The process confines itself to what this one call reads before it touches the machine, refuses user and group 0, and has no environment. Exit code 0 means that a result was written, also one that reports an error; 1 means that there is none.

## Result document

| member | meaning |
| --- | --- |
| ` + "`status`" + ` | ` + "`ok`" + `; ` + "`unavailable`" + `: this host lacks what the tool reads, which is a result; ` + "`error`" + ` |
| ` + "`data`" + ` | with ` + "`ok`" + ` only: follows the tool's schema below |
| ` + "`truncated`" + ` | JSON pointers: a list that lost items from its end, or a text that was cut |
| ` + "`error`, `next`" + ` | without ` + "`ok`" + `: what happened and what to do next |

The whole document fits the limit of the table. Texts are valid UTF-8; control characters, escape sequences and invisible formatting characters are replaced by U+FFFD (messages of the journal keep line ends and tabs). Nothing that can hold secrets is opened: no environment, no command line, no unit environment, no configuration.

## What each call may touch

| tool | files | programs | sockets | groups |
| --- | --- | --- | --- | --- |
| ` + "`system_inspect`" + ` | of /proc what the wanted sections need; all of it only for processes; os-release | none | none | none |
| ` + "`npu_inspect`" + ` | accelerator classes in /sys, /sys/devices, names in library folders | none | none | none |
| ` + "`package_query`" + ` | package databases | rpm, where it has a database | none | none |
| ` + "`service_inspect`" + ` | none | none | the system bus, one property at a time | none |
| ` + "`journal_read`" + ` | journal folders, machine-id | journalctl | none | systemd-journal |

## Foreign formats

What is parsed, its bound, and the fuzz target: /proc/PID/stat (4 KiB, FuzzStat), mountinfo (4 MiB, FuzzMount), dpkg status (256 MiB streamed, lines of 64 KiB, FuzzDpkg), pacman desc (1 MiB, FuzzDesc), rpm's answer (1 MiB, FuzzRPM), journal JSON lines (256 KiB each, FuzzJournal), arguments (FuzzArgs), D-Bus replies (1 MiB a call).

## Catalogue

`
