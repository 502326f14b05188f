//go:build linux

package linux

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

type twoLists struct {
	A, B []string
	F    float64
	cut  []string
}

func (d *twoLists) lists() []list  { return []list{listOf("/A", &d.A), listOf("/B", &d.B)} }
func (d *twoLists) cuts() []string { return d.cut }

func TestFit(t *testing.T) {
	t.Parallel()
	items := func(n, size int) []string { return slices.Repeat([]string{strings.Repeat("x", size)}, n) }
	for name, c := range map[string]struct {
		doc       twoLists
		limit     int
		truncated []string
		status    string
	}{
		"fits":         {twoLists{A: items(3, 5), B: items(3, 5)}, 1000, nil, "ok"},
		"heaviest":     {twoLists{A: items(3, 5), B: items(500, 5)}, 1000, []string{"/B"}, "ok"},
		"both":         {twoLists{A: items(500, 5), B: items(500, 5)}, 1000, []string{"/A", "/B"}, "ok"},
		"large items":  {twoLists{A: items(3, 500)}, 1200, []string{"/A"}, "ok"},
		"cuts":         {twoLists{cut: []string{"/A/0"}}, 1000, []string{"/A/0"}, "ok"},
		"never":        {twoLists{A: items(2, 5), B: items(2, 5)}, 20, nil, "error"},
		"unencodable":  {twoLists{F: math.NaN()}, 1000, nil, "error"},
		"one too many": {twoLists{A: items(1, 2000)}, 1000, []string{"/A"}, "ok"},
	} {
		r := fit(&c.doc, c.limit)
		if r.Status != c.status {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		if diff := cmp.Diff(c.truncated, r.Truncated); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		whole, err := json.Marshal(r)
		if err != nil || r.Status == "ok" && len(whole) > c.limit {
			t.Errorf("%s: %d bytes, limit %d, %v", name, len(whole), c.limit, err)
		}
	}
	// The cut isn't wasteful: most of the room is used.
	d := twoLists{A: items(5000, 10)}
	if r := fit(&d, 10_000); len(r.Data) < 9_000 {
		t.Errorf("only %d bytes of 10000 used", len(r.Data))
	}
	// What stays is the beginning.
	d = twoLists{}
	for i := range 1000 {
		d.A = append(d.A, fmt.Sprint(i))
	}
	fit(&d, 1000)
	if d.A[0] != "0" || len(d.A) >= 1000 {
		t.Errorf("kept %d items from %q", len(d.A), d.A[0])
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, want string
		limit    int
		multi    bool
		cut      bool
	}{
		{"plain ü 漢", "plain ü 漢", 64, false, false},
		{"\x1b[31mred\x07", "\ufffd[31mred\ufffd", 64, false, false},
		{"a\nb\tc", "a\ufffdb\ufffdc", 64, false, false},
		{"a\nb\tc\r", "a\nb\tc\ufffd", 64, true, false},
		{"a\u202eb\u2066c\u200bd\ufeff", "a\ufffdb\ufffdc\ufffdd\ufffd", 64, false, false},
		{"c1 \u009b31m", "c1 \ufffd31m", 64, false, false},
		{"sep \u2028 \u2029", "sep \ufffd \ufffd", 64, true, false},
		{"\xff\xfe", "\ufffd\ufffd", 64, false, false},
		{"漢漢", "漢", 5, false, true},
		{"abc", "abc", 3, false, false},
		{"abcd", "abc", 3, false, true},
		{"", "", 0, false, false},
	} {
		got, cut := clean(c.in, c.limit, c.multi)
		if got != c.want || cut != c.cut {
			t.Errorf("clean(%q, %d, %v) = %q, %v; want %q, %v", c.in, c.limit, c.multi, got, cut, c.want, c.cut)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b\u202e\xff", 3, true)
	f.Fuzz(func(t *testing.T, s string, limit int, multi bool) {
		got, _ := clean(s, limit, multi)
		if len(got) > max(limit, 0) || !utf8.ValidString(got) {
			t.Errorf("clean(%q, %d) = %q", s, limit, got)
		}
		for _, r := range got {
			if r < ' ' && !(multi && (r == '\n' || r == '\t')) || r == 0x7f || r == 0x202e {
				t.Errorf("clean(%q) kept %q", s, r)
			}
		}
	})
}
