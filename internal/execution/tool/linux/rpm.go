//go:build linux

package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// rpmFormat is one line a package. The summary comes last, for it may hold tabs.
const rpmFormat = `%{NAME}\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{SUMMARY}\n`

const maxRPM = 1 << 20 // bytes of rpm's answer

// rpmDirs are the places of rpm's database: classic, then since Fedora 36 and
// openSUSE, then ostree systems.
var rpmDirs = []string{"/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm"}

func (h Host) rpmDirs() []string {
	if h.RPMDB != "" {
		return []string{h.RPMDB}
	}
	return h.paths(rpmDirs...)
}

// hasRPM is true on a host with the rpm program and a database of any backend;
// the program alone is installed on many Debian machines.
func hasRPM(h Host) bool {
	if _, err := os.Stat(h.RPM); err != nil {
		return false
	}
	for _, d := range h.rpmDirs() {
		for _, f := range []string{"rpmdb.sqlite", "Packages.db", "Packages"} {
			if _, err := os.Stat(filepath.Join(d, f)); err == nil {
				return true
			}
		}
	}
	return false
}

func findRPM(ctx context.Context, h Host, name string) ([]pkg, error) {
	argv := []string{"--query", "--queryformat", rpmFormat}
	if h.RPMDB != "" {
		argv = append(argv, "--dbpath", h.RPMDB)
	}
	var found []pkg
	var absent bool
	_, err := stream(ctx, h.RPM, append(argv, "--", name), func(r io.Reader) error {
		var err error
		found, absent, err = parseRPM(r, name)
		return err
	})
	// rpm exits with 1 for a package that isn't there, and says the same of one in
	// a database that it can't read; then it complains.
	var exit *exitError
	if absent && len(found) == 0 && errors.As(err, &exit) && !strings.Contains(exit.complaint, "error:") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// parseRPM parses rpm's answer in rpmFormat; absent means that rpm said so. rpm
// also matches NAME-VERSION: such answers are not for this name and left out.
func parseRPM(r io.Reader, name string) (found []pkg, absent bool, err error) {
	malformed := false
	err = eachLine(r, maxField, maxRPM, func(l []byte) bool {
		if string(l) == "package "+name+" is not installed" {
			absent = true
			return true
		}
		f := strings.SplitN(string(l), "\t", 4)
		if len(f) != 4 {
			malformed = true
			return false
		}
		if f[0] == name && len(found) < maxFound {
			found = append(found, pkg{
				Name: line(f[0], 128), Version: line(f[1], 256), Status: installed,
				Architecture: line(f[2], 64), Summary: line(f[3], 512),
			})
		}
		return true
	})
	if err == nil && malformed {
		err = errors.New("malformed line")
	}
	if err != nil {
		return nil, false, fmt.Errorf("read answer of rpm: %w", err)
	}
	return found, absent, nil
}
