// Package label says how far a value may be trusted and who may read it.
//
// State owned: none. Imports: standard library. Imported by: gate and whoever
// makes or carries results. Invariant (INV-14): the zero Label is the most
// restrictive one (no trust, no readers), so a forgotten label is safe. In this
// version labels are recorded and shown; no decision depends on them yet.
// Tests: label_test.go.
package label

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
	// Readers are principals ("uid:1000"); empty is nobody.
	Readers []string `json:"readers,omitempty"`
}
