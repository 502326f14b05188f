//go:build linux

package daemon

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"agentos/internal/control/anchor"
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
func (s *Session) hostService() *hostapi.Service {
	var raw *probe.Raw
	read := func() probe.Raw {
		if raw == nil {
			r := probe.Read()
			raw = &r
		}
		return *raw
	}
	return hostapi.New(hostapi.Deps{Settings: s.loaded, Sections: []hostapi.Section{
		hostapi.Kernel(read),
		hostapi.Isolation(read, s.root),
		hostapi.Checks("model",
			hostapi.Check{Name: "backend", Look: func(context.Context) (string, string, error) {
				b, err := backend.Choose(s.settings(), s.owner)
				return b.Name, b.Why, err
			}},
			hostapi.Check{Name: "policies", Look: s.checkPolicies},
		),
		hostapi.Checks("identity",
			hostapi.Check{Name: "owner", Look: func(context.Context) (string, string, error) { return userName(s.owner), "", nil }},
			hostapi.Check{Name: "agent", Look: s.checkIdentity},
		),
		hostapi.Checks("state",
			hostapi.Check{Name: "directory", Look: s.checkState, Optional: true},
			hostapi.Check{Name: "anchors", Look: s.checkAnchors},
			hostapi.Check{Name: "programs", Look: s.checkBinaries},
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

func (s *Session) checkPolicies(context.Context) (string, string, error) {
	files, err := authority.Sources(s.settings().Policy.Dir)
	if err != nil {
		return "", "", err
	}
	set, err := policy.Compile(files)
	if err != nil {
		return "", "", fault.Wrap(err, fault.Usage, "`agentos policy check` lists every problem", "load policies")
	}
	return fmt.Sprintf("%d policies", len(set.Policies())), set.Revision(), nil
}

func (s *Session) checkIdentity(ctx context.Context) (value, detail string, err error) {
	c := s.settings().Agent
	value = c.ID
	detail = "bound at its first run"
	if !s.root {
		detail = fmt.Sprintf("runs as UID %d, the same user as you: bound at its first run", os.Geteuid())
	}
	err = s.withReader(ctx, func(r *statestore.Reader) error {
		bs, err := identity.List(ctx, r)
		var parts []string
		for _, b := range bs {
			if b.Owner == s.owner && b.Agent == c.ID {
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

func (s *Session) checkState(ctx context.Context) (value, detail string, err error) {
	value = s.settings().StateDir
	err = s.withReader(ctx, func(r *statestore.Reader) error {
		_, size, err := r.Checkpoint(ctx)
		detail = fmt.Sprintf("%d records, signed", size)
		return err
	})
	return value, detail, err
}

// checkAnchors says where checkpoints go besides the state directory. Without
// one a cut tail can't be noticed by anybody who holds no checkpoint.
func (s *Session) checkAnchors(context.Context) (string, string, error) {
	as, err := s.anchors()
	if err != nil {
		return "", "", err
	}
	if len(as) == 0 {
		return "none", "", fault.New(fault.Unavailable, "set audit.anchors to journald or file:/PATH on another disk, or keep what `agentos audit checkpoint` prints",
			"nothing outside the state directory keeps checkpoints: a cut tail of the log would not be noticed")
	}
	var names []string
	for i, a := range as {
		names = append(names, a.Name())
		place := anchor.JournalSocket
		if c := s.places()[i]; c.Kind == "file" {
			place = filepath.Dir(c.Path)
		}
		if _, err := os.Stat(place); err != nil {
			return strings.Join(names, ", "), "", fault.Wrap(err, fault.Unavailable,
				"set audit.anchors to what this host has: journald, or file:/PATH on another disk", "checkpoints can't be anchored at %s", a.Name())
		}
	}
	return strings.Join(names, ", "), "", nil
}

func (s *Session) checkBinaries(context.Context) (string, string, error) {
	var names []string
	for _, n := range []string{"agentos-launcher", "agentos-loop", "agentos-shim", "agentos-tool"} {
		f, err := spawn.OpenBinary(s.binary(n))
		if err != nil {
			return s.cfg.Binaries, "", err
		}
		_ = f.Close()
		names = append(names, n)
	}
	return s.cfg.Binaries, strings.Join(names, ", "), nil
}
