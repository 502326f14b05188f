//go:build linux

package daemon

import (
	"context"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/control/authority"
	"agentos/internal/control/identity"
	"agentos/internal/control/runapi"
	"agentos/internal/control/wrapped"
	"agentos/internal/execution/profile"
	"agentos/internal/execution/sandbox"
	"agentos/internal/host/procstatus"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
	"agentos/internal/trusted/principal"
)

// runService is RunService over this process's runs.
func (s *Session) runService() *runapi.Service {
	return runapi.New(runapi.Deps{
		Table: s.runs, Owner: s.owner, Make: s.makeRun, Reader: s.withReader,
		Plan: func(_ context.Context, spec *pb.RunSpec) (*pb.RunPlan, error) {
			p, err := s.profileOf(spec)
			if err != nil {
				return nil, err
			}
			// Identities are bound when something runs; until then a stand-in.
			built, err := s.build("run-shown", spec, p, s.standIn(p.Name), filepath.Join(s.cfg.StateDir, "homes", p.Name))
			if err != nil {
				return nil, err
			}
			return runapi.Render(built.Plan, p.Name, built.Notices)
		},
		Profiles: func() (*pb.ProfilesResponse, error) {
			set, err := s.profiles()
			if err != nil {
				return nil, err
			}
			out := &pb.ProfilesResponse{}
			for _, p := range set.All() {
				out.Profiles = append(out.Profiles, &pb.ProfileInfo{Name: p.Name, Summary: p.Summary, File: p.File, Commands: p.Commands})
			}
			return out, nil
		},
	})
}

// profiles are the built-in ones and the owner's own.
func (s *Session) profiles() (*profile.Set, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "set HOME or XDG_CONFIG_HOME", "find the folder of your profiles")
	}
	return profile.Load(filepath.Join(dir, "agentos", "profiles"))
}

func (s *Session) profileOf(spec *pb.RunSpec) (profile.Profile, error) {
	if len(spec.GetCommand()) == 0 {
		return profile.Profile{}, fault.New(fault.Usage, "agentos run -- COMMAND", "no command to run")
	}
	set, err := s.profiles()
	if err != nil {
		return profile.Profile{}, err
	}
	if spec.GetProfile() != "" {
		return set.Get(spec.GetProfile())
	}
	return set.For(spec.GetCommand()[0])
}

// bound is who a run's parts work as.
type bound struct {
	agent, shim principal.Binding
}

// standIn is an identity for a plan that is only shown.
func (s *Session) standIn(agent string) bound {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if s.root {
		uid, gid = principal.Reserved.First, principal.Reserved.First
	}
	b := principal.Binding{Agent: agent, Role: principal.Agent, Owner: s.owner, UID: uid, GID: gid}
	return bound{agent: b, shim: b}
}

// makeRun plans a run and binds its identities; nothing is started.
func (s *Session) makeRun(ctx context.Context, spec *pb.RunSpec) (*wrapped.Run, error) {
	p, err := s.profileOf(spec)
	if err != nil {
		return nil, err
	}
	name := spec.GetName()
	if name == "" {
		name = p.Name
	}
	st, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := principal.Resolve(ctx, identity.Store{S: st.store}, principal.Want{
		Agent: name, Owner: s.owner, At: s.now(),
		Self: principal.Credentials{UID: uint32(os.Getuid()), EUID: uint32(os.Geteuid()), GID: uint32(os.Getgid()), EGID: uint32(os.Getegid())},
	}, principal.Reserved)
	if err != nil {
		return nil, err
	}
	home, err := s.home(p)
	if err != nil {
		return nil, err
	}
	built, err := s.build(newID("run"), spec, p, bound{ids[principal.Agent], ids[principal.Shim]}, home)
	if err != nil {
		return nil, err
	}
	return s.wrap(ctx, st, spec, p, name, ids, built)
}

// wrap puts a planned run together.
func (s *Session) wrap(_ context.Context, st *openState, spec *pb.RunSpec, p profile.Profile, name string, ids map[principal.Role]principal.Binding, built sandbox.Result) (*wrapped.Run, error) {
	settings := s.settings()
	settings.Agent.ID = name
	auth, err := authority.New(authority.Config{Settings: settings, Owner: s.owner}, st.store, st.ledger, s.now)
	if err != nil {
		return nil, err
	}
	anchors, err := s.anchors()
	if err != nil {
		return nil, err
	}
	l, err := s.launch()
	if err != nil {
		return nil, err
	}
	shim, err := s.shimBinary()
	if err != nil {
		return nil, err
	}
	return wrapped.New(wrapped.Config{
		Plan: built.Plan, Name: name, Profile: p.Name, Agent: name, Owner: s.owner, Shim: ids[principal.Shim], Root: s.root,
		Policy: auth.Policies.Revision(), Notices: built.Notices,
	}, wrapped.Deps{
		Gate: auth.Gate, Limits: auth.Ledger, Journal: st.store, Launcher: l, Status: procstatus.Read, Shim: shim,
		Seal: func(ctx context.Context) { _ = seal(ctx, st.store, anchors) }, NewID: newID, Now: s.now,
	}), nil
}

// home is the folder of a profile's persistent home, made when it is new.
func (s *Session) home(p profile.Profile) (string, error) {
	if p.Home != profile.Persistent {
		return "", nil
	}
	dir := filepath.Join(s.cfg.StateDir, "homes", p.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.Wrap(err, fault.Unavailable, "check the state directory", "make the home of profile %q", p.Name)
	}
	if s.root {
		if err := os.Chown(dir, int(s.owner), -1); err != nil {
			return "", fault.Wrap(err, fault.Unavailable, "check the state directory", "give the home of profile %q to its owner", p.Name)
		}
	}
	return dir, nil
}

func (s *Session) build(run string, spec *pb.RunSpec, p profile.Profile, ids bound, home string) (sandbox.Result, error) {
	owner, err := s.ownerOf(spec)
	if err != nil {
		return sandbox.Result{}, err
	}
	if p.Home != profile.Persistent {
		home = ""
	}
	strength := sandboxplan.Strength(spec.GetStrength())
	return sandbox.Build(sandbox.Request{
		Run: run, Profile: p, Command: spec.GetCommand(), Dir: spec.GetDir(), RW: spec.GetRw(), RO: spec.GetRo(), Deny: spec.GetDeny(),
		Limits: spec.GetLimits(), Strength: strength, TTY: spec.GetTty(), Rows: uint16(spec.GetRows()), Cols: uint16(spec.GetCols()),
		Identity: sandboxplan.Identity{
			UID: ids.agent.UID, GID: ids.agent.GID, OwnerUID: s.owner, OwnerGID: s.ownerGID(), User: "agent",
		},
		Owner: owner, StateDir: s.cfg.StateDir, Home: home,
	}, sandbox.Local{})
}

func (s *Session) ownerGID() uint32 {
	if u, err := user.LookupId(strconv.FormatUint(uint64(s.owner), 10)); err == nil {
		if n, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
			return uint32(n)
		}
	}
	return uint32(os.Getegid())
}

// ownerOf is the person behind a run, as the spec's environment and the user
// database describe them.
func (s *Session) ownerOf(spec *pb.RunSpec) (sandbox.Owner, error) {
	o := sandbox.Owner{Env: spec.GetEnv(), Path: spec.GetEnv()["PATH"], Home: spec.GetEnv()["HOME"]}
	if o.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return o, fault.Wrap(err, fault.Usage, "set HOME", "find your home folder")
		}
		o.Home = home
	}
	return o, nil
}
