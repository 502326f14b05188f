// Package audit is the audit record and the proof over all of them: canonical
// records, RFC 6962 tree heads, signed checkpoints, payload commitments and the
// verification of a whole log.
//
// State owned: none; values in, values out. No clock, no disk, no SQL. Verify
// uses goroutines that end before it returns. Imports: lib/canon, x/mod
// sumdb/{tlog,note}. Imported by: gate (entries), control/statestore (storage),
// the API and CLI (reports). Locks: none.
// Invariants: a record has exactly one encoding; INV-11: any removal, change or
// reordering of records is found with the public key and a saved checkpoint;
// INV-01: Verify refuses a log in which an intent has no or two outcomes.
// Formats: docs/spec/audit-record.md, docs/spec/audit-log.md.
// Tests: *_test.go here (vectors in testdata, FuzzDecode, FuzzCheckpoint); the
// whole C-14 table over a real store is in control/statestore.
package audit
