// Package sandbox makes the plan of a wrapped agent's sandbox from a profile, the
// caller's flags and what the host has (Build), and tells people what it says
// (Explain). It is a pure function: the host comes in as an interface.
//
// State owned: none. Imports: lib/fault, lib/sandboxplan, execution/profile.
// Imported by: control. Portable. Invariants: what neither profile, flag nor the
// system list names is absent (INV-02, C-10); what could not be enforced is
// refused, for example a denied path inside a writable tree (C-01); a repository
// is writable without its hooks and configuration (C-02).
// Format: docs/spec/sandbox-plan.md. Tests: the _test.go files here, golden plans
// in testdata.
package sandbox
