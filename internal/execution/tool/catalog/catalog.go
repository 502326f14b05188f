// Package catalog is the list of built-in tools as pure data: names, schemas,
// effects and limits. The daemon registers these with the gate; nothing here
// reads the machine, so linking it pulls in no reader.
//
// State owned: none. Imports: execution/tool, the schema files beside it.
// Imported by: the daemon, cmd/agentos-tool, tests. Portable. Invariants: every
// schema is strict (additionalProperties false at every object, bounded strings
// and arrays), and every result of execution/tool/linux with status ok
// validates against its output schema. The page docs/spec/tools.md is generated
// from this list. Tests: catalog_test.go; execution/tool/linux/schema_test.go
// holds results against the schemas.
//
// Spec: OSA-05, AOS-06.
package catalog

import (
	"embed"
	"fmt"
	"time"

	"agentos/internal/execution/tool"
)

//go:embed schema/*.json
var schemas embed.FS

// DefaultLimit bounds the arguments and the result document of each tool, in bytes.
const DefaultLimit = 64 << 10

// Names of the built-in tools.
const (
	SystemInspect  = "system_inspect"
	NPUInspect     = "npu_inspect"
	PackageQuery   = "package_query"
	ServiceInspect = "service_inspect"
	JournalRead    = "journal_read"
)

// ReadOnly returns the descriptors of the built-in read-only tools in a fixed
// order. Each call returns fresh values; the only error is a schema file missing
// from the build.
func ReadOnly() ([]tool.Descriptor, error) {
	list := []tool.Descriptor{
		{
			Name: SystemInspect, Deadline: 5 * time.Second,
			Description: "Inspect this Linux machine: kernel, uptime, load, pressure stall information, memory, " +
				"local filesystems, OS release, and the processes that use most CPU right now (measured over a " +
				"quarter of a second). Without sections, all of them.",
		},
		{
			Name: NPUInspect, Deadline: 5 * time.Second,
			Description: "List the accelerators (NPU, GPU) of this machine: device nodes, kernel class devices with " +
				"vendor, device and driver, and vendor runtime libraries. A count of 0 means that none was found.",
		},
		{
			Name: PackageQuery, Deadline: 10 * time.Second,
			Description: "Look up one package by its exact name in the package databases of this machine (dpkg, rpm, " +
				"pacman): installed or not, version, status, architecture, summary.",
		},
		{
			// A D-Bus daemon hangs up on a UID without an account.
			Name: ServiceInspect, Deadline: 10 * time.Second, Allowlist: "unit", Account: "nobody",
			Description: "State of one systemd unit by its full name, such as ssh.service: loaded, active, enabled, " +
				"main process, restarts, last result, memory and CPU time.",
		},
		{
			Name: JournalRead, Deadline: 10 * time.Second, Allowlist: "unit", Groups: []string{"systemd-journal"},
			Description: "Newest journal entries of one systemd unit by its full name, such as ssh.service, newest " +
				"first; optionally only the last since_minutes minutes or entries at least as severe as priority.",
		},
	}
	for i := range list {
		d := &list[i]
		d.Effect, d.MaxArgs, d.MaxResult = tool.Read, DefaultLimit, DefaultLimit
		var err error
		if d.InputSchema, err = schemas.ReadFile("schema/" + d.Name + ".input.json"); err != nil {
			return nil, fmt.Errorf("read input schema of %q: %w", d.Name, err)
		}
		if d.OutputSchema, err = schemas.ReadFile("schema/" + d.Name + ".output.json"); err != nil {
			return nil, fmt.Errorf("read output schema of %q: %w", d.Name, err)
		}
	}
	return list, nil
}

// Lookup returns the descriptor of one built-in tool, and whether there is one.
func Lookup(name string) (tool.Descriptor, bool) {
	list, err := ReadOnly()
	if err != nil {
		return tool.Descriptor{}, false
	}
	for _, d := range list {
		if d.Name == name {
			return d, true
		}
	}
	return tool.Descriptor{}, false
}
