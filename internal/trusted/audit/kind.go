package audit

// Valid reports whether k is in the closed set of this version.
func (k Kind) Valid() bool {
	switch k {
	case KindGenesis, KindRunStart, KindRunState, KindRunEnd, KindIntent, KindOutcome, KindDenied, KindRecovery:
		return true
	}
	return false
}

// OfCall reports whether records of this kind belong to exactly one call.
func (k Kind) OfCall() bool {
	switch k {
	case KindIntent, KindOutcome, KindDenied:
		return true
	}
	return false
}
