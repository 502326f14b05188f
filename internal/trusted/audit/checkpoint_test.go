package audit

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// testKey is a key for a log called name.
func testKey(t testing.TB, name string) *Key {
	t.Helper()
	secret, err := GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	k, other := testKey(t, "agentos/log/1"), testKey(t, "agentos/log/2")
	root := tlog.RecordHash([]byte("x"))
	msg, err := k.Sign(77, root)
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenCheckpoint(msg, k.Verifier)
	if err != nil || c != (Checkpoint{"agentos/log/1", 77, root}) {
		t.Fatalf("%+v, %v", c, err)
	}
	sign := func(text string) []byte {
		b, err := note.Sign(&note.Note{Text: text}, k.signer)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	text := Checkpoint{"agentos/log/1", 77, root}.text()
	if _, err := OpenCheckpoint(sign(text+"extension line\n"), k.Verifier); err != nil {
		t.Errorf("extension line: %v", err)
	}
	tests := map[string]struct {
		msg []byte
		key string
	}{
		"another key":      {msg, other.Verifier},
		"no key":           {msg, "agentos"},
		"changed size":     {bytes.Replace(msg, []byte("77"), []byte("78"), 1), k.Verifier},
		"no signature":     {[]byte(text), k.Verifier},
		"another origin":   {sign(strings.Replace(text, "log/1", "log/9", 1)), k.Verifier},
		"size with zero":   {sign(strings.Replace(text, "77", "077", 1)), k.Verifier},
		"negative size":    {sign(strings.Replace(text, "77", "-7", 1)), k.Verifier},
		"short root":       {sign("agentos/log/1\n77\nAAAA\n"), k.Verifier},
		"two lines":        {sign("agentos/log/1\n77\n"), k.Verifier},
		"too large a note": {sign(text + strings.Repeat("x", MaxNote) + "\n"), k.Verifier},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c, err := OpenCheckpoint(tt.msg, tt.key); !errors.Is(err, ErrCheckpoint) {
				t.Errorf("opened as %+v, %v", c, err)
			}
		})
	}
}

func TestKeyHidesItsSecret(t *testing.T) {
	t.Parallel()
	secret, err := GenerateKey(rand.Reader, "agentos/log/1")
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k)} {
		if s != "audit key agentos/log/1" {
			t.Errorf("prints as %q", s)
		}
	}
	for _, bad := range []string{"", "PRIVATE+KEY", secret[:len(secret)-4], strings.Replace(secret, "KEY", "KEZ", 1)} {
		if _, err := ParseKey(bad); err == nil || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("parse: %v", err)
		}
	}
}

func TestSplitNotes(t *testing.T) {
	t.Parallel()
	k := testKey(t, "agentos/log/1")
	var notes [][]byte
	for n := range uint64(3) {
		m, err := k.Sign(n, tlog.Hash{byte(n)})
		if err != nil {
			t.Fatal(err)
		}
		notes = append(notes, m)
	}
	for _, sep := range []string{"", "\n", "\n\n"} {
		file := append([]byte(sep), bytes.Join(notes, []byte(sep))...)
		got, err := SplitNotes(append(file, sep...))
		if err != nil || len(got) != 3 {
			t.Fatalf("separator %q: %d notes, %v", sep, len(got), err)
		}
		for i := range got {
			if c, err := OpenCheckpoint(got[i], k.Verifier); err != nil || c.Size != uint64(i) {
				t.Errorf("separator %q, note %d: %+v, %v", sep, i, c, err)
			}
		}
	}
	for _, bad := range []string{"text\n", "text", string(notes[0]) + "more\n"} {
		if got, err := SplitNotes([]byte(bad)); err == nil {
			t.Errorf("%q split into %d", bad, len(got))
		}
	}
	if got, err := SplitNotes(nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
}

// FuzzCheckpoint: parsing never fails badly, and an accepted text is the one
// that its checkpoint signs.
func FuzzCheckpoint(f *testing.F) {
	k := testKey(f, "agentos/log/1")
	m, err := k.Sign(5, tlog.Hash{1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m)
	f.Add([]byte(Checkpoint{"o", 1<<53 - 1, tlog.Hash{2}}.text()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseText(string(b)); err == nil && !strings.HasPrefix(string(b), c.text()) {
			t.Fatalf("%q parsed as %q", b, c.text())
		}
		if c, err := OpenCheckpoint(b, k.Verifier); err == nil && (c.Size != 5 || c.Root != tlog.Hash{1}) {
			t.Fatalf("opened %+v, which was never signed", c)
		}
		notes, err := SplitNotes(b)
		total := 0
		for _, n := range notes {
			total += len(n)
		}
		if err == nil && total > len(b) {
			t.Fatalf("%d bytes of notes in %d", total, len(b))
		}
	})
}
