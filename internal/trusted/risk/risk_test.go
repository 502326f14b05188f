package risk

import "testing"

func TestRate(t *testing.T) {
	for _, tc := range []struct {
		f        Facts
		want     Class
		approval bool
	}{
		{Facts{"read", true}, Low, false},
		{Facts{"read", false}, Medium, false},
		{Facts{"start", true}, Low, false},
		{Facts{"generate", true}, Low, false},
		{Facts{"generate", false}, Medium, false},
		{Facts{"write", true}, High, true},
		{Facts{"admin", true}, Critical, true},
		{Facts{"", true}, Critical, true},
		{Facts{"Read", true}, Critical, true},
		{Facts{"teleport", true}, Critical, true},
	} {
		if got := Rate(tc.f); got != tc.want || got.NeedsApproval() != tc.approval {
			t.Errorf("%+v: %s, approval %v", tc.f, got, got.NeedsApproval())
		}
	}
	if !Class("made up").NeedsApproval() {
		t.Error("unknown class needs nobody")
	}
}
