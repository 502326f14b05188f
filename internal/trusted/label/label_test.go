package label

import (
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJoin(t *testing.T) {
	alice, both := []string{"uid:1"}, []string{"uid:1", "uid:2"}
	for name, tc := range map[string]struct{ a, b, want Label }{
		"zero is bottom":          {Label{}, Label{Trusted, []string{Public}}, Label{Integrity: Untrusted}},
		"untrusted wins":          {Label{Untrusted, both}, Label{Trusted, both}, Label{Untrusted, both}},
		"readers meet":            {Label{Trusted, both}, Label{Trusted, alice}, Label{Trusted, alice}},
		"public is neutral":       {Label{Trusted, []string{Public}}, Label{Trusted, alice}, Label{Trusted, alice}},
		"public and public":       {Label{Trusted, []string{Public}}, Label{Trusted, []string{Public}}, Label{Trusted, []string{Public}}},
		"nobody stays nobody":     {Label{Trusted, nil}, Label{Trusted, []string{Public}}, Label{Integrity: Trusted}},
		"unknown level untrusted": {Label{"very-trusted", both}, Label{Trusted, both}, Label{Untrusted, both}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, Join(tc.a, tc.b)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(Join(tc.b, tc.a), Join(tc.a, tc.b)); d != "" {
				t.Error("not commutative", d)
			}
		})
	}
}

// TestJoinNeverRaises is the lattice law behind INV-14, over random labels.
func TestJoinNeverRaises(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	people := []string{"uid:1", "uid:2", "uid:3", Public}
	gen := func() Label {
		l := Label{Integrity: []Integrity{Trusted, Untrusted}[rnd.Intn(2)]}
		for _, p := range people {
			if rnd.Intn(3) == 0 {
				l.Readers = append(l.Readers, p)
			}
		}
		return l
	}
	may := func(l Label, who string) bool { return contains(l.Readers, who) || contains(l.Readers, Public) }
	for range 5000 {
		a, b, c := gen(), gen(), gen()
		j := Join(a, b)
		if j.Integrity == Trusted && (a.Integrity != Trusted || b.Integrity != Trusted) {
			t.Fatalf("trust raised: %v %v → %v", a, b, j)
		}
		for _, p := range []string{"uid:1", "uid:2", "uid:3", "uid:9"} {
			if may(j, p) != (may(a, p) && may(b, p)) {
				t.Fatalf("readers of %v %v → %v: %s", a, b, j, p)
			}
		}
		if d := cmp.Diff(Join(j, c), Join(a, Join(b, c))); d != "" {
			t.Fatal("not associative", d)
		}
	}
}
