package principal

import (
	"context"
	"errors"
	"testing"

	"agentos/internal/lib/fault"
)

type memStore struct {
	rows map[string]Binding
	next uint32
	err  error
}

func key(owner uint32, agent string, role Role) string {
	return string(role) + "/" + agent + "/" + string(rune(owner))
}

func (m *memStore) Binding(_ context.Context, owner uint32, agent string, role Role) (Binding, bool, error) {
	b, ok := m.rows[key(owner, agent, role)]
	return b, ok, m.err
}

func (m *memStore) Bind(_ context.Context, b Binding, r Range) (Binding, error) {
	if b.UID == 0 {
		b.UID, b.GID = r.First+m.next, r.First+m.next
		m.next++
	}
	m.rows[key(b.Owner, b.Agent, b.Role)] = b
	return b, nil
}

var (
	root  = Credentials{}
	alice = Credentials{1000, 1000, 1000, 1000}
)

func TestResolve(t *testing.T) {
	for name, tc := range map[string]struct {
		w    Want
		want fault.Kind
		uids []uint32 // agent, shim, tool
	}{
		"root takes from the range":  {Want{Agent: "a", Self: root}, "", []uint32{100, 101, 102}},
		"root, configured":           {Want{Agent: "a", Self: root, UID: 777, GID: 778}, "", []uint32{777, 100, 101}},
		"root, UID without GID":      {Want{Agent: "a", Self: root, UID: 777}, fault.Denied, nil},
		"root, GID without UID":      {Want{Agent: "a", Self: root, GID: 777}, fault.Denied, nil},
		"user is everybody":          {Want{Agent: "a", Owner: 1000, Self: alice}, "", []uint32{1000, 1000, 1000}},
		"user, same configured":      {Want{Agent: "a", Owner: 1000, Self: alice, UID: 1000, GID: 1000}, "", []uint32{1000, 1000, 1000}},
		"user wants another":         {Want{Agent: "a", Owner: 1000, Self: alice, UID: 1001, GID: 1000}, fault.Denied, nil},
		"user wants another group":   {Want{Agent: "a", Owner: 1000, Self: alice, GID: 4}, fault.Denied, nil},
		"user in group 0":            {Want{Agent: "a", Owner: 1000, Self: Credentials{1000, 1000, 0, 0}}, fault.Denied, nil},
		"empty agent ID":             {Want{Self: alice}, fault.Usage, nil},
		"agent ID that is a path":    {Want{Agent: "../x", Self: alice}, fault.Usage, nil},
		"agent ID with a new line":   {Want{Agent: "a\nb", Self: alice}, fault.Usage, nil},
		"agent ID longer than a row": {Want{Agent: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Self: alice}, fault.Usage, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(t.Context(), &memStore{rows: map[string]Binding{}}, tc.w, Range{100, 200})
			if fault.KindOf(err) != tc.want {
				t.Fatalf("got %v, want kind %q", err, tc.want)
			}
			for i, uid := range tc.uids {
				if b := got[Roles()[i]]; b.UID != uid {
					t.Errorf("%s: UID %d, want %d", b.Role, b.UID, uid)
				}
			}
		})
	}
}

func TestBindingIsStable(t *testing.T) {
	s := &memStore{rows: map[string]Binding{}}
	w := Want{Agent: "a", Self: root}
	one, err := Resolve(t.Context(), s, w, Range{100, 200})
	if err != nil {
		t.Fatal(err)
	}
	two, err := Resolve(t.Context(), s, w, Range{100, 200})
	if err != nil || one[Agent] != two[Agent] || one[Tool] != two[Tool] {
		t.Fatalf("%v: %v then %v", err, one, two)
	}
	w.UID, w.GID = 5000, 5000
	if _, err := Resolve(t.Context(), s, w, Range{100, 200}); fault.KindOf(err) != fault.Conflict {
		t.Fatalf("binding could be changed: %v", err)
	}
	s.rows[key(0, "a", Agent)] = Binding{Agent: "a", Role: Agent}
	w.UID, w.GID = 0, 0
	if _, err := Resolve(t.Context(), s, w, Range{100, 200}); fault.KindOf(err) != fault.Denied {
		t.Fatalf("stored UID 0 accepted: %v", err)
	}
	s.err = errors.New("disk")
	if _, err := Resolve(t.Context(), s, w, Range{100, 200}); err == nil {
		t.Fatal("store failure ignored")
	}
}

func TestVerify(t *testing.T) {
	b := Binding{Agent: "a", Role: Agent, UID: 1000, GID: 1000}
	for _, tc := range []struct {
		c  Credentials
		ok bool
	}{
		{Credentials{1000, 1000, 1000, 1000}, true},
		{Credentials{1000, 0, 1000, 1000}, false},
		{Credentials{0, 1000, 1000, 1000}, false},
		{Credentials{1000, 1000, 1000, 0}, false},
		{Credentials{1000, 1000, 0, 1000}, false},
		{Credentials{1001, 1000, 1000, 1000}, false},
		{Credentials{1000, 1001, 1000, 1000}, false},
		{Credentials{1000, 1000, 1001, 1000}, false},
		{Credentials{1000, 1000, 1000, 1001}, false},
	} {
		if err := Verify(b, tc.c); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.c, err)
		}
	}
	if Verify(Binding{}, Credentials{}) == nil {
		t.Error("zero binding verified as root")
	}
}
