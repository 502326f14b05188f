//go:build !linux

package config

import (
	"errors"
	"os"

	"agentos/internal/lib/fault"
)

var errNotDir = errors.New("not a directory")

func openConfig(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil && notExist(err) {
		return nil, fault.Wrap(err, fault.NotFound, "create it, or name another with --config", "open configuration %q", path)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "check the path", "open configuration %q", path)
	}
	return f, nil
}

// checkOwner fails closed: ownership is judged on Linux only.
func checkOwner(_ *os.File, path string) error {
	return fault.New(fault.Unavailable, "run agentosd on Linux", "read configuration %q: this platform has no ownership check", path)
}
