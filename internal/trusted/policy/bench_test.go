package policy

import "testing"

// BenchmarkDecide is one decision of the shipped set, conversion included; the
// table against plain cedar-go is integration/bench.
func BenchmarkDecide(b *testing.B) {
	s := mustCompile(b, Default()...)
	req := agentCall("normal", "journal_read", "read", `{"lines":50,"unit":"ssh.service"}`)
	req.Run = "run-1"
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(req)
	}
}
