package policy

import (
	"strings"
	"testing"
)

func TestRunTests(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Default()...)
	read, write := agentCall("normal", "journal_read", "read", ""), agentCall("normal", "file_write", "write", "")
	broken := agentCall("", "journal_read", "read", "")
	tests := []struct {
		name string
		c    Case
		want string // in the failure; empty: passes
	}{
		{"allow", Case{Request: read, Allow: true}, ""},
		{"allow by rule", Case{Request: read, Allow: true, Rules: []string{"normal-reads"}}, ""},
		{"deny", Case{Request: write}, ""},
		{"deny by no rule", Case{Request: write, Rules: []string{}}, ""},
		{"wrong allow", Case{Request: write, Allow: true}, "want allow, got deny"},
		{"wrong deny", Case{Request: read}, "want deny, got allow"},
		{"wrong rule", Case{Request: read, Allow: true, Rules: []string{"other"}}, "want deciding rules [other], got [normal-reads]"},
		{"missing rule", Case{Request: read, Allow: true, Rules: []string{}}, "want deciding rules [], got [normal-reads]"},
		{"rule of a default denial", Case{Request: write, Rules: []string{"normal-reads"}}, "got []"},
		{"error", Case{Request: broken, Allow: true}, "unknown trust"},
	}
	for _, tt := range tests {
		got := RunTests(s, []Case{tt.c})
		if len(got) != 1 || (tt.want == "") != (got[0].Failure == "") || !strings.Contains(got[0].Failure, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got[0].Failure, tt.want)
		}
	}
}
