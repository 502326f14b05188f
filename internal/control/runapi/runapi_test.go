//go:build linux

package runapi

import (
	"testing"

	"agentos/internal/control/wrapped"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

func run(id, name string, owner uint32) *wrapped.Run {
	return wrapped.New(wrapped.Config{Plan: sandboxplan.Plan{Run: id}, Name: name, Owner: owner}, wrapped.Deps{})
}

func TestFind(t *testing.T) {
	tab := NewTable()
	for _, r := range []*wrapped.Run{run("run-aaa1", "one", 1), run("run-aab2", "two", 1), run("run-aac3", "one", 2)} {
		tab.add(r)
	}
	for ref, want := range map[string]string{
		"run-aaa1": "run-aaa1", "run-aab": "run-aab2", "aab": "run-aab2", "one": "run-aaa1", "two": "run-aab2",
		"run-aac3": "", // another owner's: as if it were not there
		"aac":      "", "nothing": "", "": "",
	} {
		r, err := tab.find(1, ref)
		switch {
		case want == "" && fault.KindOf(err) != fault.NotFound:
			t.Errorf("%q: %v", ref, err)
		case want != "" && (err != nil || r.ID != want):
			t.Errorf("%q: %v", ref, err)
		}
	}
	if _, err := tab.find(1, "run-aa"); fault.KindOf(err) != fault.Usage || fault.NextOf(err) == "" {
		t.Errorf("ambiguous: %v", err)
	}
	owner := uint32(2)
	if l := tab.list(&owner); len(l) != 1 || l[0].ID != "run-aac3" {
		t.Errorf("%v", l)
	}
	if tab.Live() != 3 {
		t.Error("live", tab.Live())
	}
}

func TestRenderIsThePlan(t *testing.T) {
	p := sandboxplan.Plan{Version: sandboxplan.Version, Run: "run-1", Strength: sandboxplan.Full, Command: []string{"true"}}
	out, err := Render(p, "generic", []string{"note"})
	if err != nil || out.GetProfile() != "generic" || len(out.GetLines()) == 0 || out.GetJson() == "" || out.GetNotices()[0] != "note" {
		t.Errorf("%+v %v", out, err)
	}
}
