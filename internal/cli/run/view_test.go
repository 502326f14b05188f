package run

import (
	"strings"
	"testing"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli/clitest"
	"agentos/internal/lib/termsafe"

	"google.golang.org/protobuf/proto"
)

func TestNothingHostileIsPrinted(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 40, 100} {
		for name, show := range map[string]func(s *session, m proto.Message){
			"runs":    func(s *session, m proto.Message) { printRuns(s.e, m.(*agentosv1.RunListResponse)) },
			"plan":    func(s *session, m proto.Message) { printPlan(s.e, m.(*agentosv1.RunPlan)) },
			"inspect": func(s *session, m proto.Message) { printInspect(s.e, m.(*agentosv1.RunInspectResponse)) },
			"started": func(s *session, m proto.Message) {
				s.started = m.(*agentosv1.RunStarted)
				s.announce(true)
			},
		} {
			m := map[string]proto.Message{"runs": &agentosv1.RunListResponse{}, "plan": &agentosv1.RunPlan{}, "inspect": &agentosv1.RunInspectResponse{}, "started": &agentosv1.RunStarted{}}[name]
			clitest.Fill(m)
			e, out := clitest.Env(width)
			show(newSession(e, false), m)
			clitest.Harmless(t, name, out)
		}
	}
}

func TestConfinement(t *testing.T) {
	t.Parallel()
	st := &agentosv1.RunStarted{Run: "run-1", Profile: "p", Strength: "full", Layers: []string{
		"mount namespace", "pid namespace", "network namespace (loopback only)", "idmapped mounts", "private root", "own uid 7", "landlock (ABI 7)", "seccomp (819 instructions)"}}
	if got, want := confinement(st), "run-1, profile p, full: 3 namespaces, own uid 7, private root, landlock, seccomp, idmapped mounts"; got != want {
		t.Errorf("%q", got)
	}
	for range 40 {
		st.Layers = append(st.Layers, "another layer")
	}
	if got := confinement(st); termsafe.Width(got) > maxLine || !strings.HasSuffix(got, " more") {
		t.Errorf("%d cells: %q", termsafe.Width(got), got)
	}
}
