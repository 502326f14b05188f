package tool_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/execution/tool"
)

// A result is one line that says nothing it has not to say, and reads back equal.
func TestResultDocument(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r    tool.Result
		want string
	}{
		"ok":          {tool.Result{Status: "ok", Data: json.RawMessage(`{"a":1}`)}, `{"status":"ok","data":{"a":1}}`},
		"cut":         {tool.Result{Status: "ok", Data: json.RawMessage(`{}`), Truncated: []string{"/a"}}, `{"status":"ok","data":{},"truncated":["/a"]}`},
		"unavailable": {tool.Result{Status: "unavailable", Error: "e", Next: "n"}, `{"status":"unavailable","error":"e","next":"n"}`},
	} {
		got, err := json.Marshal(c.r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var back tool.Result
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.r, back); diff != "" {
			t.Errorf("%s: read back: %s", name, diff)
		}
	}
}
