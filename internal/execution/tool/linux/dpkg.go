//go:build linux

package linux

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
)

const (
	dpkgStatus = "/var/lib/dpkg/status"
	maxDpkg    = 256 << 20 // bytes of the status file
	maxField   = 64 << 10  // bytes of a line; the rest of a longer one is skipped
)

func findDpkg(ctx context.Context, h Host, name string) ([]pkg, error) {
	f, err := openRegular(h.path(dpkgStatus))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseDpkg(ctx, f, name)
}

// parseDpkg streams a dpkg status file (deb-control(5) stanzas) and returns the
// packages of exactly that name, at most maxFound. Stanzas without a status, and
// fields that aren't asked for, are passed over.
func parseDpkg(ctx context.Context, r io.Reader, name string) ([]pkg, error) {
	var found []pkg
	var cur pkg
	lines := 0
	flush := func() {
		if cur.Name == name && cur.Status != "" && len(found) < maxFound {
			found = append(found, cur)
		}
		cur = pkg{}
	}
	err := eachLine(r, maxField, maxDpkg, func(l []byte) bool {
		if lines++; lines%4096 == 0 && ctx.Err() != nil {
			return false
		}
		if len(l) == 0 {
			flush()
			return true
		}
		// A continuation line begins with a space, so it never names a field.
		if k, v, ok := bytes.Cut(l, []byte(":")); ok {
			cur.setDpkg(string(k), bytes.TrimSpace(v))
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read dpkg status: %w", err)
	}
	flush()
	return found, ctx.Err()
}

func (p *pkg) setDpkg(field string, v []byte) {
	switch field {
	case "Package":
		p.Name = line(string(v), 128)
	case "Status":
		// "want error state": dpkg-query(1). The state is the third word.
		if f := strings.Fields(string(v)); len(f) == 3 {
			p.Status = line(f[2], 64)
			if f[1] != "ok" {
				p.Status = line(f[2]+", "+f[1], 64)
			}
		}
	case "Version":
		p.Version = line(string(v), 256)
	case "Architecture":
		p.Architecture = line(string(v), 64)
	case "Description":
		p.Summary = line(string(v), 512)
	}
}
