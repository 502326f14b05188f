// Package label says how far a value may be trusted and who may read it.
//
// State owned: none. Imports: standard library. Imported by: gate and whoever
// makes or carries results. Invariants (INV-14): Join never raises trust and
// never widens readers; the zero Label is the most restrictive one (untrusted,
// no readers), so a forgotten label is safe. Tests: label_test.go.
package label

import "sort"

// Integrity says whether a value may steer what happens.
type Integrity string

// The two levels. Anything that is not Trusted is untrusted.
const (
	Trusted   Integrity = "trusted"
	Untrusted Integrity = "untrusted"
)

// Label is the pair kept with every value.
type Label struct {
	Integrity Integrity `json:"integrity"`
	// Readers are principals ("uid:1000"); "*" is everybody; empty is nobody.
	Readers []string `json:"readers,omitempty"`
}

// Public is a reader set that everybody is in.
const Public = "*"

// Join is the label of a value derived from both: trusted only if both are,
// readable only by who may read both.
func Join(a, b Label) Label {
	out := Label{Integrity: Untrusted, Readers: meet(a.Readers, b.Readers)}
	if a.Integrity == Trusted && b.Integrity == Trusted {
		out.Integrity = Trusted
	}
	return out
}

func meet(a, b []string) []string {
	in := map[string]bool{}
	for _, r := range a {
		in[r] = true
	}
	var out []string
	for _, r := range b {
		if in[r] || in[Public] {
			out = append(out, r)
		}
	}
	if contains(b, Public) {
		out = append(out, a...)
	}
	return compact(out)
}

func contains(s []string, v string) bool {
	for _, x := range s {
		if x == v {
			return true
		}
	}
	return false
}

func compact(s []string) []string {
	sort.Strings(s)
	out := s[:0]
	for i, v := range s {
		if i == 0 || v != s[i-1] {
			out = append(out, v)
		}
	}
	if contains(out, Public) && len(out) > 1 {
		return []string{Public}
	}
	return out
}
