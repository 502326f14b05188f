package modeltest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func post(s *Server, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
	return w
}

func TestServer(t *testing.T) {
	t.Parallel()
	const ask = `{"messages":[{"role":"user","content":"the goal"}]}`
	r := say("hello")
	s := NewServer(Script{Turns: []Turn{{Response: &r, Expect: "goal"}, {Fault: Busy}}})
	steps := []struct {
		body   string
		status int
		says   string
	}{
		{`{"messages":[{"role":"user","content":"x"}]}`, 409, "expects"},
		{`{"messages":[{"role":"user","content":"x"}],"store":true}`, 400, "/store"},
		{ask, 200, `"hello"`},
		{ask, 429, "slow down"},
		{ask, 409, "no turn left"},
	}
	for i, st := range steps {
		if w := post(s, st.body); w.Code != st.status || !strings.Contains(w.Body.String(), st.says) {
			t.Errorf("step %d: %d %s, want %d with %q", i, w.Code, w.Body, st.status, st.says)
		}
	}
	if n := len(s.Requests()); n != 4 || s.Left() != 0 {
		t.Errorf("%d requests, %d turns left", n, s.Left())
	}
	s = NewServer(Script{Turns: []Turn{{Response: &r}}, Repeat: true})
	for range 3 {
		if w := post(s, ask); w.Code != 200 {
			t.Errorf("repeat: %d", w.Code)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	if w.Code != 404 {
		t.Errorf("other endpoint: %d", w.Code)
	}
}

// Every fault is in exactly one list, and its texts are what they claim to be.
func TestFaultLists(t *testing.T) {
	t.Parallel()
	n := 0
	for _, list := range [][]Fault{BodyFaults(), StatusFaults(), ConnectionFaults()} {
		for _, f := range list {
			if n++; !f.Known() {
				t.Errorf("unknown fault %q", f)
			}
		}
	}
	if n != len(faults) {
		t.Errorf("%d faults listed of %d", n, len(faults))
	}
	if s := SplitKey.Body(true); !strings.Contains(s, `"{\"u"`) || strings.Contains(s, "unit") {
		t.Errorf("not split inside a key:\n%s", s)
	}
	if Fault("x").Known() {
		t.Error("knows what is not there")
	}
}

func TestParseScript(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		`{"turns":[{"fault":"busy"},{"response":{"message":{"role":"assistant","text":"x"},"stop":"end","usage":{"input_tokens":0,"output_tokens":0}}}]}`: true,
		`{"turns":[],"repeat":true}`: true,
		`{"turns":[{}]}`:             false, `{"turns":[{"fault":"x"}]}`: false, `{"loop":1}`: false, `x`: false,
	}
	for s, ok := range tests {
		if _, err := ParseScript([]byte(s)); (err == nil) != ok {
			t.Errorf("%s: %v", s, err)
		}
	}
}
