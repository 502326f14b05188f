package audit

import (
	"strings"
	"testing"
)

// Computed with another implementation (Python hashlib).
const vectorCommitment = "460cdc85de5bcc04780990fc4bde919d1bbd2be4d902f7f3e8c69317c949f097"

func TestCommitment(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	add := func(name, c string) {
		if !ValidCommitment(c) {
			t.Errorf("%s: %q", name, c)
		}
		if old, dup := seen[c]; dup {
			t.Errorf("%s and %s commit to the same", name, old)
		}
		seen[c] = name
	}
	add("plain", Commitment([SaltSize]byte{}, "a", []byte("b")))
	add("salt", Commitment([SaltSize]byte{1}, "a", []byte("b")))
	add("shifted", Commitment([SaltSize]byte{}, "ab", nil))
	add("media", Commitment([SaltSize]byte{}, "", []byte("ab")))
	// The vector of docs/spec/audit-record.md.
	if got := Commitment([SaltSize]byte{}, "text/plain", []byte("hello")); got != "sha256:"+vectorCommitment {
		t.Errorf("vector: %s", got)
	}
	for _, bad := range []string{"", "sha256:", someCommitment + "0", strings.ToUpper(someCommitment), strings.Replace(someCommitment, "sha256", "sha512", 1)} {
		if ValidCommitment(bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}
