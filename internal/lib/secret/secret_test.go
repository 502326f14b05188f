package secret

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const canary = "sk-CANARY-0123456789"

type element struct{ Key Value }

type hidden struct{ key Value }

type holder struct {
	Key  Value
	Ptr  *Value
	List []Value
	Map  map[string]Value
}

func TestNoRenderingShowsTheSecret(t *testing.T) {
	t.Parallel()
	v := New(canary)
	h := holder{Key: v, Ptr: &v, List: []Value{v}, Map: map[string]Value{"k": v}}
	out := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%10.3s", "%p"} {
		out["value "+verb] = fmt.Sprintf(verb, v)
		out["pointer "+verb] = fmt.Sprintf(verb, &v)
		out["struct "+verb] = fmt.Sprintf(verb, h)
	}
	out["print"] = fmt.Sprint(v, h, &h, fmt.Sprintf("%v %+v %#v", hidden{v}, &hidden{v}, hidden{v}))
	out["error"] = fmt.Errorf("call with %v: %w", v, fmt.Errorf("inner %s", v)).Error()
	j, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	out["json"] = string(j)
	x, err := xml.Marshal(element{v})
	if err != nil {
		t.Fatal(err)
	}
	out["xml"] = string(x)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "key", v, "holder", h)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "key", v, "holder", h)
	out["slog"] = log.String()
	hex := fmt.Sprintf("%x", canary)
	for how, s := range out {
		if strings.Contains(s, canary) || strings.Contains(strings.ToLower(s), hex) || strings.Contains(s, canary[:6]) {
			t.Errorf("%s shows the secret: %s", how, s)
		}
	}
	if !strings.Contains(out["json"], Redacted) || !strings.Contains(out["slog"], Redacted) {
		t.Errorf("a set secret should show as %s: %s %s", Redacted, out["json"], out["slog"])
	}
}

func TestReveal(t *testing.T) {
	t.Parallel()
	if v := New(canary); v.Reveal() != canary || !v.IsSet() {
		t.Error("reveal lost the secret")
	}
	if v := New(""); v.IsSet() || v.String() != "" || v.Reveal() != "" {
		t.Error("empty is unset")
	}
}
