package policy

import (
	"testing"
)

func mustCompile(t testing.TB, files ...Source) *Set {
	t.Helper()
	s, err := Compile(files)
	if err != nil {
		t.Fatalf("compile:\n%v", err)
	}
	return s
}

func TestDefaultCompiles(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Default()...)
	if len(s.Warnings()) != 0 {
		t.Fatal(s.Warnings())
	}
	d := s.Decide(Request{Principal: Principal{Owner: 1000, Agent: "a", Trust: "normal"}, Action: "tool.call", Resource: Resource{Type: "Tool", Name: "system_inspect", Effect: "read"}})
	t.Log(d)
	if !d.Allow {
		t.Fatal(d)
	}
}
