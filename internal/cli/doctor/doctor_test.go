package doctor

import (
	"testing"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli/clitest"
)

func TestNothingHostileIsPrinted(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 40, 100} {
		m := &agentosv1.DoctorResponse{}
		clitest.Fill(m)
		e, out := clitest.Env(width)
		Render(e, m)
		clitest.Harmless(t, "doctor", out)
	}
}
