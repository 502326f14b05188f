//go:build linux

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentos/internal/lib/sandboxplan"
)

// TestProbe: in the sandbox that the flags give the kernel does what the plan
// says, for every strength and with things to write.
func TestProbe(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		flags := [][]string{{}, {"--rw", p.Dir}, {"--profile", "claude-code"}}
		if p.UID != 0 {
			flags = append(flags, []string{"--strength", "landlock-only", "--rw", p.Dir})
		}
		for _, f := range flags {
			list := p.probe(0, f...)
			for _, x := range list {
				if !x.Agree {
					t.Errorf("%q: %+v", f, x)
				}
			}
			if len(list) < 40 {
				t.Errorf("%q: only %d checks", f, len(list))
			}
		}
		p.Want(0, []string{"✓", "KERNEL DOES", "the kernel does what the plan says"}, "sandbox", "probe")
		if left, _ := filepath.Glob(filepath.Join(p.Dir, ".agentos-probe*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if r := p.Do("sandbox", "probe", "--rw", "/no/such/path"); r.Code == 0 || !strings.Contains(r.Err, "next:") {
			t.Errorf("%v", r)
		}
		p.Paired()
	})
}

func (p *runner) probe(code int, flags ...string) []sandboxplan.Finding {
	p.T.Helper()
	r := p.Want(code, nil, append([]string{"--json", "sandbox", "probe"}, flags...)...)
	list, err := sandboxplan.ReadFindings([]byte(r.Out))
	if err != nil {
		p.T.Fatalf("%v: %v", err, r)
	}
	return list
}

// TestProbeFindsLies: a document that says other than what the sandbox is
// disagrees, in the check that is about it.
func TestProbeFindsLies(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		program := filepath.Join(p.Bin, "agentos-probe")
		honest := sandboxplan.Probe{Version: sandboxplan.Version}
		var show struct {
			JSON string `json:"json"`
		}
		r := p.Want(0, nil, "--json", "run", "--explain", "--ro", program, "--", program)
		if err := json.Unmarshal([]byte(r.Out), &show); err != nil {
			t.Fatal(err)
		}
		mount := func(target string, change func(m *sandboxplan.Mount)) func(*sandboxplan.Probe) {
			return func(d *sandboxplan.Probe) {
				change(&d.Plan.Mounts[slices.IndexFunc(d.Plan.Mounts, func(m sandboxplan.Mount) bool { return m.Target == target })])
			}
		}
		for want, lie := range map[string]func(*sandboxplan.Probe){
			"bind " + p.Dir: mount(p.Dir, func(m *sandboxplan.Mount) { m.Write = true }),
			"tmpfs /tmp":    mount("/tmp", func(m *sandboxplan.Mount) { m.Write = false }),
			"tmpfs /run":    mount("/run", func(m *sandboxplan.Mount) { m.Exec = true }),
			"bind /usr":     mount("/usr", func(m *sandboxplan.Mount) { m.Exec = false }),
			"contents of /": func(d *sandboxplan.Probe) {
				d.Plan.Mounts = slices.DeleteFunc(d.Plan.Mounts, func(m sandboxplan.Mount) bool { return m.Target == "/proc" })
			},
			"uid": func(d *sandboxplan.Probe) {
				d.Plan.Identity.UID++
				if d.Plan.Strength != sandboxplan.Full {
					d.Plan.Identity.OwnerUID++
				}
			},
			"host name":       func(d *sandboxplan.Probe) { d.Plan.Hostname = "other" },
			"variables":       func(d *sandboxplan.Probe) { d.Plan.Env = d.Plan.Env[1:] },
			"host's /usr/bin": func(d *sandboxplan.Probe) { d.Absent = []string{"/usr/bin"} },
		} {
			doc := honest
			if err := json.Unmarshal([]byte(show.JSON), &doc.Plan); err != nil {
				t.Fatal(err)
			}
			lie(&doc)
			if got := p.ask(program, doc); !slices.Contains(got, want) {
				t.Errorf("%s: differences %q", want, got)
			}
		}
	})
}

// ask runs agentos-probe as any program and names what disagrees.
func (p *runner) ask(program string, doc sandboxplan.Probe) (out []string) {
	p.T.Helper()
	in, err := json.Marshal(doc)
	if err != nil {
		p.T.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.T.Context(), time.Minute)
	defer cancel()
	c := p.Cmd(ctx, "run", "-q", "--ro", program, "--", program)
	var errb bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(in), &errb
	b, err := c.Output()
	if err != nil {
		p.T.Fatalf("%v: %s", err, errb.String())
	}
	list, err := sandboxplan.ReadFindings(b)
	if err != nil {
		p.T.Fatal(err)
	}
	for _, f := range list {
		if !f.Agree {
			out = append(out, f.Check)
		}
	}
	return out
}
