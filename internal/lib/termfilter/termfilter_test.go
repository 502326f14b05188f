package termfilter

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func run(f *Filter, in string) string { return string(f.Append(nil, []byte(in))) }

func asking() *Filter { return New(Config{Name: "demo", Queries: true}) }

// Each row is a decision of docs/spec/terminal.md. want is the output; "=" means
// unchanged.
func TestDecisions(t *testing.T) {
	t.Parallel()
	title := func(n, s string) string { return "\x1b[22;0t\x1b]" + n + ";[agentos demo] " + s + "\x1b\\" }
	for _, tt := range []struct{ name, in, want string }{
		{"text", "plain ä 你 🦊 \r\n\t\b\a", "="},
		{"colours", "\x1b[1;38;2;1;2;3m\x1b[38:5:9m\x1b[4:3mx\x1b[m", "="},
		{"cursor", "\x1b[H\x1b[10;20H\x1b[5A\x1b[2G\x1b[3d\x1b7\x1b8\x1b[s\x1b[u\x1bM", "="},
		{"erase and insert", "\x1b[2J\x1b[K\x1b[3P\x1b[4@\x1b[2L\x1b[2M\x1b[5X\x1b[9b", "="},
		{"scroll region", "\x1b[3;20r\x1b[2S\x1b[2T", "="},
		{"other screen", "\x1b[?1049h\x1b[?1049l", "="},
		{"modes", "\x1b[?1h\x1b=\x1b[?25l\x1b[?2004h\x1b[?1000;1002;1006h\x1b[?2026h\x1b[4h", "="},
		{"line drawing", "\x1b(0qqq\x1b(B\x0e\x0f", "="},
		{"cursor style", "\x1b[2 q\x1b[!p", "="},
		{"kitty keys", "\x1b[>1u\x1b[=5;1u\x1b[<1u", "="},
		{"other keys", "\x1b[>4;2m\x1b[>4m", "="},
		{"questions", "\x1b[c\x1b[0c\x1b[>c\x1b[5n\x1b[6n\x1b[?6n\x1b[?u\x1b[>0q\x1b[?2026$p\x1b[?996n", "="},
		{"link", "\x1b]8;id=a;https://x.example/?a;b\x1b\\here\x1b]8;;\x1b\\", "="},

		{"control in a sequence", "\x1b[1\n;2H", "\x1b[1;2H"},
		{"sequence cut by another", "\x1b[1\x1b[2C", "\x1b[2C"},
		{"cancelled", "\x1b[1\x18x\x1b]0;t\x1ay", "xy"},
		{"unlisted modes", "\x1b[?25;1337;2031;3l\x1b[?3h\x1b[20h\x1b[2h\x1b[?69h\x1b[?67h\x1b[?2048h\x1b[?1007h", "\x1b[?25l"},
		{"answerback", "a\x05b", "ab"},
		{"flow control", "\x11\x13\x00\x7f", ""},
		{"C1 in bytes", "\x9b31m\x9d0;x\x07", "\ufffd31m\ufffd0;x\a"},
		{"C1 in UTF-8", "\u009b31m\u0090\u009c", "31m"},
		{"broken UTF-8", "\xe2\x82x\xe2\x1b[1m\xff\xc0\xaf\xed\xa0\x80", "\ufffdx\ufffd\x1b[1m\ufffd\ufffd\ufffd\ufffd\ufffd"},
		{"full reset", "\x1bc", "\x1b[!p\x1b[H\x1b[2J"},
		{"leave UTF-8", "\x1b%@\x1b%G\x1b G\x1b F", ""},
		{"locking shifts and terminal ids", "\x1bn\x1bo\x1b}\x1b~\x1bN\x1bO\x1bZ\x1bl\x1bm\x1b#3", ""},
		{"other charsets", "\x1b(K\x1b*0\x1b-A\x1b(%5", ""},
		{"tab stops", "\x1bH\x1b[3g", ""},
		{"scrollback", "\x1b[3J", ""},
		{"window reports and operations", "\x1b[21t\x1b[20t\x1b[14t\x1b[18t\x1b[8;50;80t\x1b[3;1;1t\x1b[23t\x1b[2t", ""},
		{"media copy", "\x1b[5i\x1b[?5i\x1b[4i", ""},
		{"checksum of the screen", "\x1b[1;1;1;1;1;1*y", ""},
		{"tertiary attributes, parameters", "\x1b[=c\x1b[x\x1b[1x", ""},
		{"other reports", "\x1b[?15n\x1b[?26n\x1b[?63n\x1b[1$w\x1b[#|\x1b[1;1'|", ""},
		{"rectangles and columns", "\x1b[1;1;9;9$x\x1b[1;1;9;9$z\x1b[1'}\x1b[1 @", ""},
		{"levels", "\x1b[62\"p\x1b[1\"q", ""},
		{"saved modes", "\x1b[?2004s\x1b[?2004r\x1b[?4m", ""},
		{"left and right margins", "\x1b[1;5s", ""},
		{"mouse highlight", "\x1b[1;2;3;4;5T", ""},
		{"huge numbers", "\x1b[999999b\x1b[1;100000H", ""},
		{"colons elsewhere", "\x1b[1:2H", ""},
		{"clipboard", "\x1b]52;c;aGk=\x07\x1b]52;c;?\x1b\\", ""},
		{"colours of the terminal", "\x1b]4;1;?\x07\x1b]10;?\x07\x1b]11;#000\x07\x1b]12;?\x1b\\\x1b]104\x07", ""},
		{"folder, notifications, prompts", "\x1b]7;file:///\x07\x1b]9;x\x07\x1b]777;notify;a;b\x07\x1b]133;A\x07\x1b]633;A\x07", ""},
		{"files", "\x1b]1337;File=inline=1:AAAA\x07\x1b]50;x\x07", ""},
		{"DCS", "\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1bPq#0;1\x1b\\", ""},
		{"tmux passthrough", "\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\x", "x"},
		{"APC, PM, SOS, screen title", "\x1b_Gf=24;AAAA\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\\x1bkx\x1b\\", ""},
		{"kitty keys of others", "\x1b[<5u", ""},
		{"kitty keys over others", "\x1b[=1u", "\x1b[>0u\x1b[=1u"},
		{"title", "\x1b]0;root@host\x07", title("0", "root@host")},
		{"title with controls", "\x1b]2;a\u009cb\u202ec\nd\x1b\\", title("2", "abcd")},
		{"link elsewhere", "\x1b]8;;file:///etc/passwd\x07x\x1b]8;;javascript:1\x07", "\x1b]8;;\x1b\\x\x1b]8;;\x1b\\"},
		{"link with a space", "\x1b]8;;http://a b\x07", "\x1b]8;;\x1b\\"},
		{"link parameters", "\x1b]8;x=y:id=1;HTTPS://a\x07", "\x1b]8;id=1;HTTPS://a\x1b\\"},
		{"long title", "\x1b]0;" + strings.Repeat("x", 5000) + "\x07y", "y"},
		{"string that never ends", "\x1bP" + strings.Repeat("x", maxString-2) + "y", "y"},
		{"sequence that never ends", "\x1b[" + strings.Repeat("1", maxSequence-2) + "yz", "yz"},
		{"string ended by ESC", "\x1b]0;x\x1b[1mtext", "\x1b[1mtext"},
	} {
		want := tt.want
		if want == "=" {
			want = tt.in
		}
		if got := run(asking(), tt.in); got != want {
			t.Errorf("%s: %.100q gives %.100q, want %.100q", tt.name, tt.in, got, want)
		}
	}
}

// Where the answer would be typed into the person's shell, nothing is asked.
func TestNoQueries(t *testing.T) {
	t.Parallel()
	f := New(Config{Name: "x"})
	in := "\x1b[c\x1b[0c\x1b[>c\x1b[5n\x1b[6n\x1b[?6n\x1b[?u\x1b[>q\x1b[?2026$p\x1b[4$p\x1b[?996n"
	if got := run(f, in); got != "" || f.Asked() {
		t.Errorf("%q", got)
	}
	f = asking()
	if run(f, "x"); f.Asked() {
		t.Error("asked nothing")
	}
	if run(f, "\x1b[6n"); !f.Asked() {
		t.Error("does not know that something was asked")
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	f := New(Config{Name: "a\x1b]0;x\x07\u009d\u202eb" + strings.Repeat("c", 100)})
	got := run(f, "\x1b]0;t\x07")
	if !strings.HasPrefix(got, "\x1b[22;0t\x1b]0;[agentos a]0;xb"+strings.Repeat("c", 50)) || strings.Count(got, "\x1b") != 3 || len(got) > 200 {
		t.Errorf("%q", got)
	}
}

func TestEnd(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"text\r\n":                   "",
		"\x1b[1mx":                   "\x1b[0m",
		"\x1b[?1049h\x1b[?1049l":     "",
		"\x1b[?25l\x1b[?25h\x1b[?7h": "",
		"\x1b[?25l\x1b[?1049h\x1b[?2004;1000;1006h\x1b[>1u": "\x1b[?2004;1000;1006l\x1b[?25h\x1b[<1u\x1b[?1049l",
		"\x1b[>1u\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[<u":        "\x1b[?1049l\x1b[<2u",
		"\x1b]8;;http://x\x07":                              "\x1b]8;;\x1b\\",
		"\x1b[2;5r\x1b[4h\x1b=\x1b(0\x0e":                   "\x1b[4l\x1b7\x1b[r\x1b8\x1b>\x1b(B\x1b)B\x0f",
		"\x1b[4 q\x1b[>4;1m\x1b]0;t\x07":                    "\x1b[>4m\x1b[0 q\x1b[23;0t",
		"\x1b]0;unfinished":                                 "",
	} {
		f := asking()
		run(f, in)
		if got := string(f.End(nil)); got != want {
			t.Errorf("end of %q: %q, want %q", in, got, want)
		}
		if again := string(f.End(nil)); again != "" {
			t.Errorf("second end of %q: %q", in, again)
		}
		if got := run(f, "x"); got != "x" {
			t.Errorf("after the end of %q: %q", in, got)
		}
	}
}

// language is everything that may come out, written apart from the code.
var language = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`[\x{20}-\x{7e}\x{a0}-\x{d7ff}\x{e000}-\x{10ffff}]`, `[\x07-\x0f]`,
	`\x1b[78=>DEM]`, `\x1b#8`, `\x1b[()][B0A]`,
	`\x1b\[[\d;]{0,160}[@A-IK-MPSXZ` + "`" + `abdef]`, `\x1b\[[0-24-9]?J`, `\x1b\[\d{2,5}J`, `\x1b\[[\d;:]*m`,
	`\x1b\[\d{0,5}T`, `\x1b\[(\d{0,5};?\d{0,5})r`, `\x1b\[[su]`, `\x1b\[4[hl]`, `\x1b\[0?c`, `\x1b\[[56]n`,
	`\x1b\[\?(?:(?:[15679]|12|25|66|47|1000|1002|1003|1004|1005|1006|1015|1016|1047|1048|1049|2004|2026|2027);){0,31}(?:[15679]|12|25|66|47|1000|1002|1003|1004|1005|1006|1015|1016|1047|1048|1049|2004|2026|2027)[hl]`,
	`\x1b\[\?u`, `\x1b\[\?6n`, `\x1b\[\?996n`, `\x1b\[>0?[cq]`, `\x1b\[>4(;\d{0,5})?m`, `\x1b\[[<>]\d{0,5}u`, `\x1b\[=\d{0,5}(;\d{0,5})?u`,
	`\x1b\[\d{0,5} q`, `\x1b\[!p`, `\x1b\[\??\d{0,5}\$p`, `\x1b\[2[23];0t`,
	`\x1b\][012];\[agentos demo\] [\x{20}-\x{7e}\x{a0}-\x{10ffff}]{0,200}\x1b\\`,
	`\x1b\]8;(?:id=[!-~]{0,250})?;(?:[hH][tT][tT][pP][sS]?://[!-~]*)?\x1b\\`,
}, `|`) + `)*$`)

func check(t *testing.T, in []byte, cut uint64) {
	t.Helper()
	f := asking()
	whole := f.Append(nil, in)
	whole = f.End(whole)
	if !language.Match(whole) || !utf8.Valid(whole) {
		t.Fatalf("%q gives %q", in, whole)
	}
	rnd := rand.New(rand.NewPCG(cut, 1))
	g := asking()
	var parts []byte
	for rest := in; len(rest) > 0; {
		n := 1 + rnd.IntN(min(len(rest), 7))
		parts = g.Append(parts, rest[:n])
		rest = rest[n:]
	}
	if parts = g.End(parts); !bytes.Equal(whole, parts) {
		t.Fatalf("%q cut in pieces gives %q, whole %q", in, parts, whole)
	}
	// What came out changes nothing more when it goes in again, except that titles
	// would be marked twice and what asks is still allowed to.
	if !bytes.Contains(whole, []byte("\x1b]")) && !bytes.Contains(whole, []byte("t")) {
		again := asking().Append(nil, f0(in))
		if !bytes.Equal(again, f0(in)) {
			t.Fatalf("not stable: %q, then %q", f0(in), again)
		}
	}
}

// f0 is the output without the end.
func f0(in []byte) []byte { return asking().Append(nil, in) }

func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		"\x1b[?1049h\x1b[1;38:2::1:2:3mx\x1b]0;t\x07\x1b]8;;https://x\x1b\\", "\x1bPtmux;\x1b\x1b]52;c;AA\x07\x1b\\", "\x1b[>1u\x1b[=1u\x1b[<9u",
		"\xe2\x82\xac\xe2\x82\x1b[", "\x1b[?25;1337l\x1b[5i\x1b[21t\x1b[3J", "\x1b]8;id=x;file:///\x07\x1bc\x1b(0", "\x1b[6n\x1b[?2026$p\x1b[4 q\x1b[!p",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint64) { check(t, in, cut) })
}

// The fuzzer's oracle sees what it is for.
func TestLanguage(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"\x1b]52;c;AA\x1b\\", "\x1b[21t", "\x1b[3J", "\x1bP", "\x9b", "\u009b", "\x05", "\x1b[?1337h", "\x1b]0;root\x1b\\", "\x1b", "\x1bc", "\x1b[?25;3h", "\x1b]8;;file:///\x1b\\"} {
		if language.MatchString(s) && utf8.ValidString(s) {
			t.Errorf("the language has %q", s)
		}
	}
}

// Sequences made of the right letters, which a fuzzer takes long to find.
func TestGenerated(t *testing.T) {
	t.Parallel()
	words := []string{"\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b_", "?", ">", "<", "=", ";", ":", "1", "4", "25", "1049", "2004", "52", "8", "0", "22", "h", "l", "m", "u", "t", "c", "n", "q", "p", "r", "J", "H", " ", "!", "$", "*", "#", "(", "\x07", "\x1b\\", "\x9c", "\u009b", "\x18", "http://x", "id=1", "tmux;", "é", "\xe2", "\x0e", "\n"}
	for seed := range uint64(30000) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var b []byte
		for range rnd.IntN(24) {
			b = append(b, words[rnd.IntN(len(words))]...)
		}
		check(t, b, seed)
	}
}
