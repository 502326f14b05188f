//go:build linux

package hostapi

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/control/config"
	"agentos/internal/host/probe"
	"agentos/internal/lib/fault"
)

func look(v, d string, err error) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) { return v, d, err }
}

// TestVerdict: the verdict is the worst of what was found; what is missing is
// never called good.
func TestVerdict(t *testing.T) {
	missing := fault.New(fault.Unavailable, "install it", "not here")
	for name, tc := range map[string]struct {
		check Check
		state string
		want  string
	}{
		"good":              {Check{Name: "x", Look: look("v", "d", nil)}, "ok", "full"},
		"missing":           {Check{Name: "x", Look: look("", "", missing)}, "reduced", "reduced"},
		"missing, optional": {Check{Name: "x", Look: look("", "", missing), Optional: true}, "absent", "full"},
		"wrong":             {Check{Name: "x", Look: look("", "", fault.New(fault.Denied, "chmod", "world-writable"))}, "unsafe", "unsafe"},
		"wrong, optional":   {Check{Name: "x", Look: look("", "", errors.New("odd")), Optional: true}, "unsafe", "unsafe"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Deps{Settings: &config.Result{}, Sections: []Section{Checks("s", tc.check)}})
			r, err := s.Doctor(t.Context(), connect.NewRequest(&pb.DoctorRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			it := r.Msg.GetSections()[0].GetItems()[0]
			if it.GetState() != tc.state || r.Msg.GetVerdict() != tc.want || (tc.state != "ok" && it.GetDetail() == "") {
				t.Errorf("%+v, verdict %s", it, r.Msg.GetVerdict())
			}
		})
	}
}

func TestIsolationIsTheProbesWord(t *testing.T) {
	weak := probe.Raw{LandlockABI: 0, Seccomp: false}
	sec := Isolation(func() probe.Raw { return weak }, true)(t.Context())
	last := sec.GetItems()[len(sec.GetItems())-1]
	if last.GetName() != "strength" || last.GetState() == "ok" {
		t.Errorf("a kernel without landlock and seccomp is called %+v", last)
	}
}

func TestConfigShowsOrigins(t *testing.T) {
	s := New(Deps{Settings: &config.Result{Values: []config.Value{{Key: "k", Value: "v", Origin: config.FromEnv, Source: "AGENTOS_K"}}, Files: []string{"/f"}}})
	r, err := s.Config(t.Context(), connect.NewRequest(&pb.ConfigRequest{}))
	if err != nil || r.Msg.GetValues()[0].GetOrigin() != "env" || r.Msg.GetFiles()[0] != "/f" {
		t.Errorf("%v %v", r, err)
	}
}
