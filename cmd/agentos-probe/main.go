//go:build linux

// The runtime would keep descriptors of cgroup files open to follow CPU quotas.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentos-probe asks the kernel, from inside a sandbox, whether it is the
// one that the plan says: `agentos sandbox probe` starts it there as any other
// program. One document on standard input (sandboxplan.Probe), one on standard
// output (a list of sandboxplan.Finding).
//
// It harms nothing where it succeeds: the files that it makes it removes, system
// calls are made so that they fail after the kernel's check of permission. It has
// no authority and decides nothing.
//
// Exit codes: 0 the findings were written, also those that disagree; 1 they were
// not, with the reason on standard error.
//
// Files: checks.go makes questions of a plan, files.go and layers.go ask them,
// kernel.go is all that touches the kernel. Imports: lib/sandboxplan, x/sys.
// Format: docs/spec/sandbox-probe.md. Tests: checks_test.go here on a machine
// that lies, integration/run on the real one. Spec: C-10, OSA-02.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"agentos/internal/lib/sandboxplan"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-probe:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	doc, err := sandboxplan.ReadProbe(in)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(probe(doc, local{}))
}
