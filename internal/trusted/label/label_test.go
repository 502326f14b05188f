package label

import "testing"

// TestZeroIsUntrusted: a label that somebody forgot to set trusts nothing and
// names no reader.
func TestZeroIsUntrusted(t *testing.T) {
	if l := (Label{}); l.Integrity == Trusted || len(l.Readers) != 0 {
		t.Errorf("%+v", l)
	}
}
