package audit

import (
	"testing"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli/clitest"
)

func TestNothingHostileIsPrinted(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 40, 100} {
		r := &agentosv1.AuditRecord{}
		clitest.Fill(r)
		e, out := clitest.Env(width)
		for _, payloads := range []map[string][]byte{nil, {clitest.Hostile: []byte(clitest.Hostile)}} {
			record(e, r, payloads, false)
		}
		table := e.NewTable("H")
		table.Row(whose(r), what(r))
		table.Write(e.Out, "")
		clitest.Harmless(t, "show", out)

		for _, ok := range []bool{false, true} {
			v := &agentosv1.VerifyResponse{Ok: ok}
			clitest.Fill(v)
			e, out = clitest.Env(width)
			verdict(e, v, false)
			clitest.Harmless(t, "verify", out)
		}

		c := &agentosv1.CheckpointResponse{}
		clitest.Fill(c)
		e, out = clitest.Env(width)
		signed(e, c, "")
		clitest.Harmless(t, "checkpoint", out)
	}
}
