// Package risk gives each call a risk class from what its target can do, and
// says which classes need a person.
//
// State owned: none. Imports: standard library. Imported by: gate, control.
// Invariant: what is not known is Critical, so an effect added without a class
// can't slip through (INV-02). Tests: risk_test.go.
package risk

// Class is how bad a call can get.
type Class string

// The classes, mildest first.
const (
	Low      Class = "low"      // observes this machine, nothing leaves it
	Medium   Class = "medium"   // data leaves this machine to a named service
	High     Class = "high"     // changes versioned state; can be undone
	Critical Class = "critical" // changes system state, or is unknown
)

// Facts are what a class depends on.
type Facts struct {
	Effect string // "read", "write", "admin", "generate", "start"
	Local  bool   // stays on this machine
}

// Rate is the class of a call.
func Rate(f Facts) Class {
	switch f.Effect {
	case "read", "start", "generate":
		if f.Local {
			return Low
		}
		return Medium
	case "write":
		return High
	default:
		return Critical
	}
}

// NeedsApproval reports whether a person has to agree to a call of this class.
func (c Class) NeedsApproval() bool { return c != Low && c != Medium }
