//go:build linux

// The runtime would keep descriptors of cgroup files open to follow CPU quotas.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentos-tool is the process of one tool call: `agentos-tool NAME`,
// arguments as one JSON object on standard input, one result document and a line
// end on standard output.
//
// It confines itself to what this call reads before it touches the machine, and
// a step of that which fails ends it. It refuses to run with any user or group
// ID 0, and drops its environment. Standard output must be a pipe or a socket:
// no file can grow.
//
// Exit codes: 0 a result was written, also one with status error or
// unavailable; 1 no result (bad use, confinement failed, output closed), with
// the reason on standard error.
//
// Imports: execution/tool/{catalog,linux}, host/confine, lib/fault. Tests:
// integration/tool. Spec: OSA-05, OSA-02, INV-13.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"agentos/internal/execution/tool"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/execution/tool/linux"
	"agentos/internal/host/confine"
	"agentos/internal/lib/fault"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-tool:", err)
		os.Exit(1)
	}
}

func run(argv []string, in io.Reader, out io.Writer) error {
	os.Clearenv()
	if len(argv) != 1 {
		return errors.New("usage: agentos-tool NAME < ARGUMENTS.json")
	}
	d, ok := catalog.Lookup(argv[0])
	if !ok {
		err := fault.New(fault.NotFound, "ask for one of the tools in the catalogue", "find tool %q", argv[0])
		return json.NewEncoder(out).Encode(linux.Failure(err))
	}
	args, err := io.ReadAll(io.LimitReader(in, int64(d.MaxArgs)+1))
	if err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	r, err := call(d, args)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// call confines the process and runs the tool. Arguments that the tool refuses
// give a result; whatever goes wrong while confining doesn't, except that a
// service isn't there to connect to.
func call(d tool.Descriptor, args []byte) (tool.Result, error) {
	host := linux.Local()
	need, err := linux.Confine(host, d.Name, args)
	if err != nil {
		return linux.Failure(err), nil
	}
	report, err := confine.Apply(confine.Plan{
		Name: "agentos-tool " + d.Name, Profile: confine.Tool, NonRoot: true,
		Read: need.Read, Exec: need.Exec, Connect: need.Connect, Procs: need.Procs,
	})
	var unreachable *net.OpError
	if errors.As(err, &unreachable) {
		return linux.Failure(err), nil
	}
	if err != nil {
		return tool.Result{}, err
	}
	host.Conns = report.Conns
	return linux.Run(context.Background(), host, d, args), nil
}
