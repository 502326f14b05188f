//go:build linux

package identity

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"agentos/internal/control/statestore"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/principal"
)

func open(t *testing.T, dir string) *statestore.Store {
	t.Helper()
	s, err := statestore.Open(t.Context(), statestore.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestRolesOverRestarts: each role of an agent has an identity of its own that
// no other role or agent gets, and keeps it over restarts (OSA-02).
func TestRolesOverRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	want := principal.Want{Agent: "a", Owner: 1000, At: time.Now()}
	var first map[principal.Role]principal.Binding
	t.Run("first", func(t *testing.T) {
		s := Store{open(t, dir)}
		var err error
		if first, err = principal.Resolve(t.Context(), s, want, principal.Range{First: 5000, Last: 5010}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("second", func(t *testing.T) {
		st := open(t, dir)
		again, err := principal.Resolve(t.Context(), Store{st}, want, principal.Range{First: 5000, Last: 5010})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint32]string{}
		for role, b := range again {
			if b.UID != first[role].UID || b.Role != role || b.Agent != "a" || b.Owner != 1000 {
				t.Errorf("%s: %+v, was %+v", role, b, first[role])
			}
			if other := seen[b.UID]; other != "" || b.UID < 5000 || b.UID > 5010 {
				t.Errorf("%s has UID %d, and so has %q", role, b.UID, other)
			}
			seen[b.UID] = string(role)
		}
		want.Agent = "b"
		other, err := principal.Resolve(t.Context(), Store{st}, want, principal.Range{First: 5000, Last: 5010})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range other {
			if seen[b.UID] != "" {
				t.Errorf("UID %d given out twice", b.UID)
			}
		}
		want.Agent = "c"
		if _, err := principal.Resolve(t.Context(), Store{st}, want, principal.Range{First: 5000, Last: 5005}); fault.KindOf(err) != fault.Limit {
			t.Errorf("range used up: %v", err)
		}
		all, err := List(t.Context(), st.Reader)
		if err != nil || len(all) != 6 {
			t.Errorf("%d bindings, %v", len(all), err)
		}
	})
}
