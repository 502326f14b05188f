package lineage

import (
	"testing"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli/clitest"
)

func TestNothingHostileIsPrinted(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 40, 100} {
		for _, allowed := range []bool{false, true} {
			m := &agentosv1.LineageResponse{}
			clitest.Fill(m)
			m.Turns[0].Calls[0].Allowed = allowed
			e, out := clitest.Env(width)
			Render(e, m)
			clitest.Harmless(t, "lineage", out)
		}
	}
}
