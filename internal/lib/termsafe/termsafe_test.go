package termsafe

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                       "",
		"plain text\n\tand tabs":                 "plain text\n\tand tabs",
		"grüße 日本 🙂":                             "grüße 日本 🙂",
		"a\x1b[31mred\x1b[0m":                    "a␛[31mred␛[0m",
		"\x1b]0;title\x07":                       "␛]0;title␇",
		"\x1b]52;c;aGk=\x1b\\":                   "␛]52;c;aGk=␛\\",
		"over\rwrite":                            "over␍write",
		"dos\r\nlines":                           "dos\nlines",
		"back\b\b\bspace\x00\x7f":                "back␈␈␈space␀␡",
		"c1 \u009b31m \u0085":                    `c1 \u{9b}31m \u{85}`,
		"bad \xff\xfe utf8 \xc3":                 "bad \ufffd\ufffd utf8 \ufffd",
		"real \ufffd":                            "real \ufffd",
		"bidi \u202egpj.exe\u2066":               `bidi \u{202e}gpj.exe\u{2066}`,
		"zero\u200bwidth\ufeff":                  `zero\u{200b}width\u{feff}`,
		"tags \U000e0041":                        `tags \u{e0041}`,
		"lines\u2028\u2029":                      `lines\u{2028}\u{2029}`,
		"private \ue000":                         `private \u{e000}`,
		"zalgo o" + strings.Repeat("\u0301", 50): "zalgo o" + strings.Repeat("\u0301", maxMarks),
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Line("a\nb\tc\x1b"); got != "a⏎b c␛" {
		t.Errorf("Line: %q", got)
	}
}

func TestCutAndWrap(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{{"hello", 5, "hello"}, {"hello!", 5, "hell…"}, {"日本語", 5, "日本…"}, {"日本語", 6, "日本語"}, {"x", 0, ""}, {"ab", 1, "…"}} {
		if got := Cut(tc.in, tc.n); got != tc.want {
			t.Errorf("Cut(%q, %d) = %q", tc.in, tc.n, got)
		}
	}
	got := Wrap("one two three four five six seven\n  indented words go on and on\n\nabcdefghijklmnopqrstuvwxyz0123456789\n- item with more words than fit", 20)
	want := []string{"one two three four", "five six seven", "  indented words go", "  on and on", "", "abcdefghijklmnopqrst", "uvwxyz0123456789", "- item with more", "  words than fit"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestJSONKeepsTheValue(t *testing.T) {
	t.Parallel()
	in := map[string]string{"k\u202e": "a\u009b\u200b\U000e0041 日本 \u2028"}
	doc, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	safe := JSON(doc)
	var out map[string]string
	if err := json.Unmarshal(safe, &out); err != nil {
		t.Fatalf("%v: %s", err, safe)
	}
	if d := cmp.Diff(in, out); d != "" {
		t.Error(d)
	}
	check(t, string(safe))
}

// check is the invariant of the package.
func check(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("invalid UTF-8: %q", s)
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.C, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || !unicode.IsGraphic(r)) {
			t.Errorf("%U is left in %q", r, s)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a\x1b[31m", "\u202e", "\xff", "e\u0301\u0301", "日本", "\r\n\r", "a b c d e f g h i j k l m n o p q r s t u v"} {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, n int) {
		out := Text(s)
		check(t, out)
		if again := Text(out); again != out {
			t.Errorf("not idempotent: %q → %q", out, again)
		}
		line := Line(s)
		check(t, line)
		if strings.ContainsAny(line, "\n\t") {
			t.Errorf("Line left a line end: %q", line)
		}
		n = n%200 + 1
		if c := Cut(line, n); Width(c) > max(n, 0) {
			t.Errorf("Cut(%q, %d) is %d wide", line, n, Width(c))
		}
		for _, l := range Wrap(out, n) {
			check(t, l)
			if Width(l) > max(n, 20) || strings.ContainsAny(l, "\n\t") {
				t.Errorf("Wrap(%d) made %q, %d wide", n, l, Width(l))
			}
		}
	})
}
