package config

import (
	"testing"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli/clitest"
)

func TestNothingHostileIsPrinted(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 40, 100} {
		m := &agentosv1.ConfigResponse{}
		clitest.Fill(m)
		for _, explain := range []bool{false, true} {
			e, out := clitest.Env(width)
			render(e, m, explain)
			clitest.Harmless(t, "config", out)
		}
	}
}
