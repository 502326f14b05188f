package loop

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSpec(t *testing.T) {
	t.Parallel()
	got, err := ParseSpec(strings.NewReader(`{"run":"run-1","goal":"look","limits":{"iterations":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{Run: "run-1", Goal: "look", Limits: Limits{Iterations: 3, ToolCalls: 16, ElapsedS: 120, OutputTokens: 2048, TotalTokens: 65536, Parallel: 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSpecRefuses(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"empty":           "",
		"no object":       `[]`,
		"two documents":   `{"goal":"a"}{"goal":"b"}`,
		"no goal":         `{"run":"x"}`,
		"unknown name":    `{"goal":"a","gaol":1}`,
		"unknown limit":   `{"goal":"a","limits":{"x":1}}`,
		"duplicate name":  `{"goal":"a","goal":"b"}`,
		"other case":      `{"goal":"a","Run":"b"}`,
		"wrong type":      `{"goal":1}`,
		"negative limit":  `{"goal":"a","limits":{"iterations":-1}}`,
		"huge limit":      `{"goal":"a","limits":{"elapsed_s":86401}}`,
		"fraction":        `{"goal":"a","limits":{"iterations":1.5}}`,
		"not UTF-8":       "{\"goal\":\"\xff\"}",
		"deep":            `{"goal":"a","limits":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
		"long goal":       `{"goal":"` + strings.Repeat("a", 1<<20+1) + `"}`,
		"long run":        `{"goal":"a","run":"` + strings.Repeat("a", 129) + `"}`,
		"more than bound": `{"goal":"a"}` + strings.Repeat(" ", MaxSpecBytes),
	} {
		if got, err := ParseSpec(strings.NewReader(s)); err == nil {
			t.Errorf("%s: accepted as %+v", name, got)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add(`{"run":"r","goal":"g","system":"s","model":"m","stream":true,"limits":{"iterations":1,"parallel":2}}`)
	f.Add(`{"goal":"g","limits":null}`)
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseSpec(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, b := range a.Limits.bounds() {
			if *b.v < 1 || *b.v > b.max {
				t.Errorf("limit %s is %d", b.name, *b.v)
			}
		}
		enc, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSpec(strings.NewReader(string(enc)))
		if err != nil || again != a {
			t.Errorf("round trip of %q: %+v, %v", enc, again, err)
		}
	})
}
