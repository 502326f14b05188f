//go:build !linux

package confine

import (
	"runtime"

	"agentos/internal/lib/fault"
)

// Apply refuses: there is no confinement here.
func Apply(p Plan) (Report, error) {
	return Report{}, fault.New(fault.Unavailable, "run on linux",
		"confine process %q: no confinement on %s", p.Name, runtime.GOOS)
}
