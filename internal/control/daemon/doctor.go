//go:build linux

package daemon

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"agentos/internal/control/authority"
	"agentos/internal/control/backend"
	"agentos/internal/control/hostapi"
	"agentos/internal/control/identity"
	"agentos/internal/control/statestore"
	"agentos/internal/host/probe"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/policy"
)

// hostService is `doctor` and `config show` over this daemon's parts.
func (d *Daemon) hostService() *hostapi.Service {
	var raw *probe.Raw
	read := func() probe.Raw {
		if raw == nil {
			r := probe.Read()
			raw = &r
		}
		return *raw
	}
	return hostapi.New(hostapi.Deps{Settings: d.loaded, Sections: []hostapi.Section{
		hostapi.Kernel(read),
		hostapi.Isolation(read, d.root),
		hostapi.Checks("model",
			hostapi.Check{Name: "backend", Look: func(context.Context) (string, string, error) {
				b, err := backend.Choose(d.settings(), d.owner)
				return b.Name, b.Why, err
			}},
			hostapi.Check{Name: "policies", Look: d.checkPolicies},
		),
		hostapi.Checks("identity",
			hostapi.Check{Name: "owner", Look: func(context.Context) (string, string, error) { return userName(d.owner), "", nil }},
			hostapi.Check{Name: "agent", Look: d.checkIdentity},
		),
		hostapi.Checks("state",
			hostapi.Check{Name: "directory", Look: d.checkState, Optional: true},
			hostapi.Check{Name: "anchors", Look: d.checkAnchors},
			hostapi.Check{Name: "programs", Look: d.checkBinaries},
		),
	}})
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("%s (%s)", u.Username, id)
	}
	return id
}

func (d *Daemon) checkPolicies(context.Context) (string, string, error) {
	files, err := authority.Sources(d.settings().Policy.Dir)
	if err != nil {
		return "", "", err
	}
	set, err := policy.Compile(files)
	if err != nil {
		return "", "", fault.Wrap(err, fault.Usage, "`agentos policy check` lists every problem", "load policies")
	}
	return fmt.Sprintf("%d policies", len(set.Policies())), set.Revision(), nil
}

func (d *Daemon) checkIdentity(ctx context.Context) (value, detail string, err error) {
	c := d.settings().Agent
	value = c.ID
	detail = "bound at its first run"
	if !d.root {
		detail = fmt.Sprintf("runs as UID %d, the same user as you: bound at its first run", os.Geteuid())
	}
	err = d.withReader(ctx, func(r *statestore.Reader) error {
		bs, err := identity.List(ctx, r)
		var parts []string
		for _, b := range bs {
			if b.Owner == d.owner && b.Agent == c.ID {
				parts = append(parts, fmt.Sprintf("%s %d:%d", b.Role, b.UID, b.GID))
			}
		}
		if len(parts) > 0 {
			detail = strings.Join(parts, ", ")
		}
		return err
	})
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	return value, detail, err
}

func (d *Daemon) checkState(ctx context.Context) (value, detail string, err error) {
	value = d.settings().StateDir
	err = d.withReader(ctx, func(r *statestore.Reader) error {
		_, size, err := r.Checkpoint(ctx)
		detail = fmt.Sprintf("%d records, signed", size)
		return err
	})
	return value, detail, err
}

// checkAnchors says where checkpoints go besides the state directory. Without
// one a cut tail can't be noticed by anybody who holds no checkpoint.
func (d *Daemon) checkAnchors(context.Context) (string, string, error) {
	as, err := d.anchors()
	if err != nil {
		return "", "", err
	}
	if len(as) == 0 {
		return "none", "", fault.New(fault.Unavailable, "set audit.anchors to journald or file:/PATH on another disk, or keep what `agentos audit checkpoint` prints",
			"nothing outside the state directory keeps checkpoints: a cut tail of the log would not be noticed")
	}
	var names []string
	for _, a := range as {
		names = append(names, a.Name())
		if err := a.Check(); err != nil {
			return strings.Join(names, ", "), "", err
		}
	}
	return strings.Join(names, ", "), "", nil
}

func (d *Daemon) checkBinaries(context.Context) (string, string, error) {
	var names []string
	for _, n := range []string{"agentos-loop", "agentos-shim", "agentos-tool"} {
		f, err := spawn.OpenBinary(d.binary(n))
		if err != nil {
			return d.dir, "", err
		}
		_ = f.Close()
		names = append(names, n)
	}
	return d.dir, strings.Join(names, ", "), nil
}
