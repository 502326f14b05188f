//go:build linux

package linux

import (
	"context"

	"agentos/internal/lib/fault"
)

type packageDoc struct {
	Name      string         `json:"name"`
	Installed bool           `json:"installed"`
	Packages  []pkg          `json:"packages"`
	Managers  []managerState `json:"managers"`
}

type pkg struct {
	Manager      string `json:"manager"`
	Name         string `json:"name"`
	Version      string `json:"version"`
	Status       string `json:"status"`
	Architecture string `json:"architecture"`
	Summary      string `json:"summary"`
}

type managerState struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

func (d *packageDoc) lists() []list  { return []list{listOf("/packages", &d.Packages)} }
func (d *packageDoc) cuts() []string { return nil }

// installed is the status that counts; every database's own word for it is
// turned into this one.
const installed = "installed"

// maxFound bounds the instances of one package name (architectures, versions).
const maxFound = 16

// managers are the package databases that are understood. here says whether the
// host has one; find returns the packages of exactly that name.
var managers = []struct {
	name string
	here func(Host) bool
	find func(context.Context, Host, string) ([]pkg, error)
}{
	{"dpkg", func(h Host) bool { return h.exists(dpkgStatus) }, findDpkg},
	{"rpm", hasRPM, findRPM},
	{"pacman", func(h Host) bool { return h.exists(pacmanLocal) }, findPacman},
}

func queryPackage(ctx context.Context, h Host, a packageArgs) (document, error) {
	d := &packageDoc{Name: *a.Name, Packages: []pkg{}, Managers: []managerState{}}
	read := false
	for _, m := range managers {
		if !m.here(h) {
			continue
		}
		found, err := m.find(ctx, h, *a.Name)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			d.Managers = append(d.Managers, managerState{m.name, "failed", line(err.Error(), 512)})
			continue
		}
		read = true
		d.Managers = append(d.Managers, managerState{Name: m.name, State: "read"})
		for _, p := range found {
			p.Manager = m.name
			d.Installed = d.Installed || p.Status == installed
			if len(d.Packages) < maxFound {
				d.Packages = append(d.Packages, p)
			}
		}
	}
	switch {
	case len(d.Managers) == 0:
		return nil, fault.New(fault.Unavailable, "this host's packages are not managed by dpkg, rpm or pacman",
			"find package database: none on this host")
	case !read:
		m := d.Managers[0]
		return nil, fault.New(fault.Unavailable, "check that the package database is intact and world-readable",
			"read %s database: %s", m.Name, m.Reason)
	}
	return d, nil
}
