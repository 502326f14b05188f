//go:build linux

package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	pacmanLocal = "/var/lib/pacman/local"
	maxPacman   = 65536   // entries of the local database
	maxDesc     = 1 << 20 // bytes of one desc file
)

// findPacman reads pacman's local database: one folder a package, named
// NAME-VERSION-RELEASE, with a desc file in it.
func findPacman(ctx context.Context, h Host, name string) ([]pkg, error) {
	list, more, err := names(h.path(pacmanLocal), maxPacman)
	if err != nil {
		return nil, err
	}
	if more {
		return nil, fmt.Errorf("read pacman database: more than %d entries", maxPacman)
	}
	var found []pkg
	for _, dir := range list {
		// Neither version nor release holds a dash, so this leaves one candidate.
		rest, ok := strings.CutPrefix(dir, name+"-")
		if !ok || strings.Count(rest, "-") != 1 || len(found) == maxFound {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := openRegular(h.path(pacmanLocal + "/" + dir + "/desc"))
		if err != nil {
			return nil, err
		}
		p, err := parseDesc(f)
		f.Close()
		if err != nil {
			return nil, err
		}
		if p.Name == name {
			found = append(found, p)
		}
	}
	return found, nil
}

// parseDesc parses a desc file of pacman's local database: %FIELD% lines, each
// followed by its values and an empty line.
func parseDesc(r io.Reader) (pkg, error) {
	p := pkg{Status: installed}
	var to *string
	var limit int
	err := eachLine(r, maxField, maxDesc, func(l []byte) bool {
		switch {
		case len(l) == 0:
			to = nil
		case to != nil:
			if *to == "" { // the first value; a list's others aren't asked for
				*to = line(string(bytes.TrimSpace(l)), limit)
			}
		default:
			switch string(l) {
			case "%NAME%":
				to, limit = &p.Name, 128
			case "%VERSION%":
				to, limit = &p.Version, 256
			case "%ARCH%":
				to, limit = &p.Architecture, 64
			case "%DESC%":
				to, limit = &p.Summary, 512
			}
		}
		return true
	})
	if err != nil {
		return pkg{}, fmt.Errorf("read pacman desc: %w", err)
	}
	if p.Name == "" || p.Version == "" {
		return pkg{}, errors.New("read pacman desc: no name or version")
	}
	return p, nil
}
