package profile

import "testing"

func TestBuiltin(t *testing.T) {
	t.Parallel()
	if _, err := Load(""); err != nil {
		t.Fatal(err)
	}
}
