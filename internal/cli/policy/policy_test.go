package policy

import (
	"testing"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli/clitest"
)

func TestNothingHostileIsPrinted(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 40, 100} {
		explained := &agentosv1.PolicyExplainResponse{}
		clitest.Fill(explained)
		e, out := clitest.Env(width)
		Stages(e, explained)
		clitest.Harmless(t, "explain", out)

		for _, ok := range []bool{false, true} {
			checked := &agentosv1.PolicyCheckResponse{Ok: ok}
			clitest.Fill(checked)
			e, out = clitest.Env(width)
			problems(e, checked)
			clitest.Harmless(t, "check", out)

			tested := &agentosv1.PolicyTestResult{Pass: ok}
			clitest.Fill(tested)
			e, out = clitest.Env(width)
			result(e, tested)
			clitest.Harmless(t, "test", out)
		}
	}
}
