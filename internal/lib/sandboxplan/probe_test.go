package sandboxplan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func probeDoc(t testing.TB, change func(*Probe)) string {
	t.Helper()
	p := Probe{Version: Version, Plan: sound(), Absent: []string{"/root"}}
	change(&p)
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadProbe(t *testing.T) {
	t.Parallel()
	good := probeDoc(t, func(*Probe) {})
	if p, err := ReadProbe(strings.NewReader(good)); err != nil || len(p.Plan.Mounts) != len(sound().Mounts) {
		t.Fatalf("%v", err)
	}
	for name, doc := range map[string]string{
		"empty":          "",
		"two documents":  good + good,
		"unknown member": `{"surprise":1,` + good[1:],
		"too long":       good + strings.Repeat(" ", MaxProbe),
		"version":        probeDoc(t, func(p *Probe) { p.Version++ }),
		"relative path":  probeDoc(t, func(p *Probe) { p.Absent = []string{"root"} }),
		"many paths":     probeDoc(t, func(p *Probe) { p.Absent = make([]string, MaxAbsent+1) }),
		"unsound plan":   probeDoc(t, func(p *Probe) { p.Plan.Identity.UID = 0 }),
	} {
		if _, err := ReadProbe(strings.NewReader(doc)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestReadFindings(t *testing.T) {
	t.Parallel()
	if f, err := ReadFindings([]byte(`[{"check":"a","plan":"x","kernel":"x","agree":true,"detail":""},{"check":"b","plan":"x","kernel":"y","agree":false,"detail":"d"}]`)); err != nil || len(f) != 2 {
		t.Fatalf("%v %v", f, err)
	}
	for name, doc := range map[string]string{
		"none":             `[]`,
		"null":             `null`,
		"agrees wrongly":   `[{"check":"a","plan":"x","kernel":"y","agree":true,"detail":""}]`,
		"differs wrongly":  `[{"check":"a","plan":"x","kernel":"x","agree":false,"detail":""}]`,
		"says nothing":     `[{"check":"a","plan":"","kernel":"","agree":true,"detail":""}]`,
		"unknown member":   `[{"check":"a","plan":"x","kernel":"x","agree":true,"detail":"","more":1}]`,
		"something behind": `[{"check":"a","plan":"x","kernel":"x","agree":true,"detail":""}] x`,
	} {
		if f, err := ReadFindings([]byte(doc)); err == nil {
			t.Errorf("%s: %v", name, f)
		}
	}
}

// FuzzProbe: what is taken, either way, is bounded and consistent.
func FuzzProbe(f *testing.F) {
	f.Add([]byte(probeDoc(f, func(*Probe) {})))
	f.Add([]byte(`[{"check":"a","plan":"x","kernel":"x","agree":true,"detail":""}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := ReadProbe(bytes.NewReader(b)); err == nil && (p.Plan.Check() != nil || len(p.Absent) > MaxAbsent) {
			t.Fatal("an unsound document was taken")
		}
		list, err := ReadFindings(b)
		if err != nil {
			return
		}
		for _, x := range list {
			if x.Agree != (x.Plan == x.Kernel) {
				t.Fatalf("%+v", x)
			}
		}
	})
}
