//go:build linux

package linux

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentos/internal/execution/tool/catalog"
)

// Every tool, on this very machine, gives a result that follows its schema.
func TestLocalResultsConform(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		catalog.SystemInspect: `{}`, catalog.NPUInspect: `{}`, catalog.PackageQuery: `{"name":"dpkg"}`,
		catalog.ServiceInspect: `{"unit":"ssh.service"}`, catalog.JournalRead: `{"unit":"ssh.service"}`,
	} {
		r := callTool(t, Local(), name, args, nil)
		if r.Status == "error" {
			t.Errorf("%s: %s", name, r.Error)
		}
	}
}

// TestArgs holds decode and the input schema to the same verdict.
func TestArgs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 200)
	for _, c := range []struct {
		tool, args string
		ok         bool
	}{
		{catalog.SystemInspect, `{}`, true},
		{catalog.SystemInspect, `{"sections":["load","os"],"processes":50}`, true},
		{catalog.SystemInspect, `{"sections":[]}`, false},
		{catalog.SystemInspect, `{"sections":["load","load"]}`, false},
		{catalog.SystemInspect, `{"sections":["environ"]}`, false},
		{catalog.SystemInspect, `{"sections":null}`, false},
		{catalog.SystemInspect, `{"sections":"load"}`, false},
		{catalog.SystemInspect, `{"processes":0}`, false},
		{catalog.SystemInspect, `{"processes":51}`, false},
		{catalog.SystemInspect, `{"processes":1.5}`, false},
		{catalog.SystemInspect, `{"Sections":["load"]}`, false},
		{catalog.SystemInspect, `{"root":"/"}`, false},
		{catalog.SystemInspect, `[]`, false},
		{catalog.SystemInspect, `null`, false},
		{catalog.NPUInspect, `{}`, true},
		{catalog.NPUInspect, `{"path":"/"}`, false},
		{catalog.PackageQuery, `{"name":"libc6"}`, true},
		{catalog.PackageQuery, `{"name":"g++-12"}`, true},
		{catalog.PackageQuery, `{"name":"Perl_x.y"}`, true},
		{catalog.PackageQuery, `{}`, false},
		{catalog.PackageQuery, `{"name":""}`, false},
		{catalog.PackageQuery, `{"name":"--eval"}`, false},
		{catalog.PackageQuery, `{"name":"../x"}`, false},
		{catalog.PackageQuery, `{"name":"a*"}`, false},
		{catalog.PackageQuery, `{"name":"a b"}`, false},
		{catalog.PackageQuery, `{"name":"a\n"}`, false},
		{catalog.PackageQuery, `{"name":"a\u0000"}`, false},
		{catalog.PackageQuery, `{"name":"` + long + `"}`, false},
		{catalog.ServiceInspect, `{"unit":"ssh.service"}`, true},
		{catalog.ServiceInspect, `{"unit":"getty@tty1.service"}`, true},
		{catalog.ServiceInspect, `{"unit":"dev-disk-by\\x2dlabel.device"}`, true},
		{catalog.ServiceInspect, `{"unit":"ssh"}`, false},
		{catalog.ServiceInspect, `{"unit":"-M.service"}`, false},
		{catalog.ServiceInspect, `{"unit":"*.service"}`, false},
		{catalog.ServiceInspect, `{"unit":"s[a-z]h.service"}`, false},
		{catalog.ServiceInspect, `{"unit":"ss*.service"}`, false},
		{catalog.ServiceInspect, `{"unit":"s?h.service"}`, false},
		{catalog.ServiceInspect, `{"unit":"a/b.service"}`, false},
		{catalog.ServiceInspect, `{"unit":"ssh.service\n"}`, false},
		{catalog.ServiceInspect, `{"unit":"` + long + long + `.service"}`, false},
		{catalog.ServiceInspect, `{"unit":5}`, false},
		{catalog.JournalRead, `{"unit":"a.service","lines":200,"since_minutes":525600,"priority":"err"}`, true},
		{catalog.JournalRead, `{"unit":"a.service","lines":0}`, false},
		{catalog.JournalRead, `{"unit":"a.service","lines":201}`, false},
		{catalog.JournalRead, `{"unit":"a.service","since_minutes":0}`, false},
		{catalog.JournalRead, `{"unit":"a.service","priority":"loud"}`, false},
		{catalog.JournalRead, `{"unit":"a.service","priority":""}`, false},
		{catalog.JournalRead, `{"unit":"?.service"}`, false},
		{catalog.JournalRead, `{"lines":5}`, false},
	} {
		d := descriptor(t, c.tool)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(c.args))
		if err != nil {
			t.Fatal(err)
		}
		if got := compile(t, d.InputSchema).Validate(doc) == nil; got != c.ok {
			t.Errorf("schema of %s on %.80s: %v", c.tool, c.args, got)
		}
		if _, err := decode(c.tool, []byte(c.args), d.MaxArgs); (err == nil) != c.ok {
			t.Errorf("decode of %s on %.80s: %v", c.tool, c.args, err)
		}
		if !c.ok {
			r := callTool(t, Local(), c.tool, c.args, nil)
			if r.Status != "error" || r.Next == "" {
				t.Errorf("run of %s on %.80s: %+v", c.tool, c.args, r)
			}
			if _, err := Confine(Local(), c.tool, []byte(c.args)); err == nil {
				t.Errorf("confine of %s on %.80s: no error", c.tool, c.args)
			}
		}
	}
}

// What no schema sees: bytes that aren't JSON, repeated names, size.
func TestArgsBeforeParsing(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"empty": "", "text": "x", "open": `{"name":`, "twice": `{"name":"a","name":"b"}`, "two": `{"name":"a"} {"name":"b"}`,
		"utf8": "{\"name\":\"\xff\"}", "huge": `{"name":"` + strings.Repeat("a", 70<<10) + `"}`,
		"deep": strings.Repeat("[", 20000),
	} {
		r := callTool(t, Local(), catalog.PackageQuery, args, nil)
		if r.Status != "error" || len(r.Error) > 1024 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := Run(t.Context(), Local(), descriptorNamed("shell"), []byte(`{}`)); r.Status != "error" {
		t.Errorf("unknown tool: %+v", r)
	}
}

func FuzzArgs(f *testing.F) {
	for _, s := range []string{`{}`, `{"unit":"a.service","lines":3}`, `{"name":"bash"}`, `{"sections":["load"],"processes":4}`, `{"unit":null}`} {
		f.Add([]byte(s))
	}
	schemas := map[string]*jsonschema.Schema{}
	list, err := catalog.ReadOnly()
	if err != nil {
		f.Fatal(err)
	}
	for _, d := range list {
		schemas[d.Name] = compile(f, d.InputSchema)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, s := range schemas {
			if _, err := decode(name, b, catalog.DefaultLimit); err != nil {
				continue
			}
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
			if err != nil {
				t.Fatalf("%s: decoded %q, which is no JSON: %v", name, b, err)
			}
			if err := s.Validate(doc); err != nil {
				t.Errorf("%s: decoded %q, which the schema refuses: %v", name, b, err)
			}
			if _, err := json.Marshal(doc); err != nil {
				t.Error(err)
			}
		}
	})
}
