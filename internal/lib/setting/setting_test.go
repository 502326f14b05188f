package setting

import (
	"strings"
	"testing"

	"agentos/internal/lib/fault"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		argv []string
		sets []Set
		rest []string
		fail string
	}{
		"nothing": {},
		"mixed": {
			argv: []string{"--inherit", "--backend", "rules", "--set", "a.b=c=d", "--state-dir=/x", "--other"},
			sets: []Set{{"model.backend", "rules", "--backend"}, {"a.b", "c=d", "--set"}, {"state_dir", "/x", "--state-dir"}},
			rest: []string{"--inherit", "--other"},
		},
		"empty value":      {argv: []string{"--set=k="}, sets: []Set{{"k", "", "--set"}}},
		"value like flag":  {argv: []string{"--agent", "--set"}, sets: []Set{{"agent.id", "--set", "--agent"}}},
		"stops":            {argv: []string{"--", "--set", "x"}, rest: []string{"--", "--set", "x"}},
		"no value":         {argv: []string{"--config"}, fail: "needs a value"},
		"no equals sign":   {argv: []string{"--set", "model"}, fail: "not key=value"},
		"no key":           {argv: []string{"--set", "=x"}, fail: "not key=value"},
		"too long":         {argv: []string{"--set", "k=" + strings.Repeat("x", MaxValue)}, fail: "longer than"},
		"long and useless": {argv: []string{"--set", strings.Repeat("x", 500)}, fail: "…"},
	} {
		sets, rest, err := Parse(tc.argv)
		if tc.fail != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fail) || fault.KindOf(err) != fault.Usage || fault.NextOf(err) == "" {
				t.Errorf("%s: error %v, want %q", name, err, tc.fail)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(tc.sets, sets) + cmp.Diff(tc.rest, rest); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestArgsRoundTrip(t *testing.T) {
	t.Parallel()
	in := []Set{{"budgets.owner.tokens", "5", "--set"}, {"k", "a=b\n=", "--set"}}
	for _, f := range Flags() {
		in = append(in, Set{f.Key, "v " + f.Name, f.Name})
	}
	out, rest, err := Parse(Args(in))
	if err != nil || len(rest) != 0 {
		t.Fatal(err, rest)
	}
	if d := cmp.Diff(in, out); d != "" {
		t.Error(d)
	}
}
