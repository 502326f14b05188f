package runspec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/lib/endreason"
)

func TestRoundTrip(t *testing.T) {
	s := Spec{Run: "r", Goal: "g", System: "s", Model: "m", Stream: true, Limits: Limits{1, 2, 3, 4, 5, 6}}
	b, _ := json.Marshal(s)
	if got, err := DecodeSpec(b); err != nil || cmp.Diff(s, got) != "" {
		t.Fatal(got, err)
	}
	r := Report{Reason: endreason.Cycle, Detail: "d", Report: "x", Iterations: 1, ToolCalls: 2}
	b, _ = json.Marshal(r)
	if got, err := DecodeReport(b); err != nil || cmp.Diff(r, got) != "" {
		t.Fatal(got, err)
	}
}

func TestRefused(t *testing.T) {
	ok := `{"run":"r","goal":"g","system":"","model":"","stream":false,"limits":{"iterations":1,"tool_calls":1,"elapsed_ms":1,"output_tokens":1,"total_tokens":1,"parallel":1}}`
	if _, err := DecodeSpec([]byte(ok)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		``, `{}`, strings.Replace(ok, `"goal":"g"`, `"goal":""`, 1), strings.Replace(ok, `"iterations":1`, `"iterations":0`, 1),
		strings.Replace(ok, `"run"`, `"uid":0,"run"`, 1), strings.Replace(ok, `"parallel":1`, `"parallel":-1`, 1),
		strings.Replace(ok, `"goal":"g"`, `"goal":"`+strings.Repeat("x", MaxGoal+1)+`"`, 1), ok + ok,
	} {
		if _, err := DecodeSpec([]byte(bad)); err == nil {
			t.Errorf("accepted %.200s", bad)
		}
	}
	for _, bad := range []string{``, `{}`, `{"reason":"fine"}`, `{"reason":"completed","x":1}`, `[]`} {
		if _, err := DecodeReport([]byte(bad)); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"reason":"completed","report":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeReport(b); err == nil && !r.Reason.Valid() {
			t.Fatal(r)
		}
		_, _ = DecodeSpec(b)
	})
}
