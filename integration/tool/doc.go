// Package tool holds the tests of a tool's process on a real kernel: what
// cmd/agentos-tool may touch, and what it refuses.
//
// State owned: none. Imports: nothing but in its tests. Imported by: nobody.
// Needs root, to start children under other users. Tests: confine_test.go
// (children of the test binary), process_test.go (the built binary).
// Spec: OSA-02, OSA-05, INV-13.
package tool
