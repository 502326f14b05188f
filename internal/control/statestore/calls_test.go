//go:build linux

package statestore

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/gate"
)

// checkIndex holds the table of calls against the records in full bundles.
func checkIndex(t *testing.T, dir string) {
	t.Helper()
	st := load(t, dir)
	want := map[string][2]int64{}
	for _, raw := range st.records[:len(st.records)/256*256] {
		r, err := audit.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		switch seq := int64(r.Seq); r.Kind {
		case audit.KindIntent:
			want[r.Call] = [2]int64{seq, -1}
		case audit.KindDenied:
			want[r.Call] = [2]int64{seq, seq}
		case audit.KindOutcome:
			want[r.Call] = [2]int64{want[r.Call][0], seq}
		}
	}
	db := database(t, dir)
	defer db.Close()
	rows, err := db.Query(`SELECT call, intent, coalesce(outcome, -1) FROM calls`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := map[string][2]int64{}
	for rows.Next() {
		var call string
		var at [2]int64
		if err := rows.Scan(&call, &at[0], &at[1]); err != nil {
			t.Fatal(err)
		}
		got[call] = at
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("index (-records +table):\n%s", diff)
	}
}

// A call is one call wherever its records are: behind the last bundle, in
// bundles, one in each, before and after a restart. Spec: INV-01.
func TestCallsAcrossBundles(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, stop := open(t, dir)
	denied := intent("call-denied")
	denied.Kind = audit.KindDenied
	refused := func(calls ...audit.Entry) {
		t.Helper()
		size := s.tree.size
		for _, e := range calls {
			if _, err := s.Commit(t.Context(), gate.Tx{Entries: []audit.Entry{e}}); fault.KindOf(err) != fault.Conflict {
				t.Errorf("%s of %s: %v", e.Kind, e.Call, err)
			}
		}
		if s.tree.size != size {
			t.Errorf("%d records, were %d", s.tree.size, size)
		}
	}
	found := func(call string, seqs ...uint64) {
		t.Helper()
		items, err := s.Call(t.Context(), call)
		var got, logged []uint64
		for _, it := range items {
			got = append(got, it.Record.Seq)
		}
		for it, lerr := range s.Log(t.Context(), Filter{Call: call}) {
			if lerr != nil {
				t.Error(lerr)
			}
			logged = append(logged, it.Record.Seq)
		}
		if err != nil || !cmp.Equal(got, seqs) || !cmp.Equal(logged, seqs) {
			t.Errorf("call %s is at %v and %v, want %v: %v", call, got, logged, seqs, err)
		}
		if id, err := s.ResolveCall(t.Context(), call[:len(call)-1]); err != nil || id != call {
			t.Errorf("resolve %s: %q, %v", call, id, err)
		}
	}
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{intent("call-span"), denied}})
	found("call-span", 1)
	refused(intent("call-span"), intent("call-denied"), outcome("call-denied"), outcome("call-none"))

	fill(t, s, 301) // call-span is in the index, without outcome
	found("call-span", 1)
	found("call-denied", 2)
	refused(intent("call-span"), intent("call-denied"), outcome("call-denied"), intent("call-00003"), intent("call-00299"))
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{outcome("call-span")}})
	found("call-span", 1, 301)
	refused(intent("call-span"), outcome("call-span"))

	// A Tx that is refused after it wrote a bundle leaves no trace.
	var many gate.Tx
	for i := range 200 {
		call := fmt.Sprintf("call-many-%03dx", i)
		many.Entries = append(many.Entries, intent(call), outcome(call))
	}
	bad := gate.Tx{Entries: append(many.Entries[:400:400], intent("call-00299"))}
	if _, err := s.Commit(t.Context(), bad); fault.KindOf(err) != fault.Conflict {
		t.Errorf("refused behind a bundle: %v", err)
	}
	bad = gate.Tx{Entries: append(many.Entries[:400:400], intent("call-many-000x"))}
	if _, err := s.Commit(t.Context(), bad); fault.KindOf(err) != fault.Conflict {
		t.Errorf("refused by its own bundle: %v", err)
	}
	refused(intent("call-00299"), outcome("call-span"))
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{intent("call-0")}}) // before all in the index
	mustCommit(t, s, many)                                              // and once without the bad record
	refused(intent("call-0"), intent("call-many-000x"), intent("call-many-199x"), intent("call-00299"))
	found("call-span", 1, 301)
	found("call-many-199x", 701, 702)
	stop()
	checkIndex(t, dir)

	s, stop = open(t, dir) // gives call-0 its outcome
	refused(intent("call-0"), outcome("call-0"), intent("call-span"), intent("call-many-000x"), intent("call-many-199x"))
	found("call-many-199x", 701, 702)
	fill(t, s, 1101)
	refused(intent("call-0"), intent("call-many-199x"), intent("call-denied"))
	stop()
	checkIndex(t, dir)
	verifyOK(t, dir, audit.Options{})
}
