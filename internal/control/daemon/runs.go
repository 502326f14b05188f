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
	"agentos/internal/control/runapi"
	"agentos/internal/control/wrapped"
	"agentos/internal/execution/profile"
	"agentos/internal/execution/sandbox"
	"agentos/internal/host/cgroup"
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
			f := folders{home: filepath.Join(s.cfg.StateDir, "homes", p.Name), scratch: filepath.Join(s.cfg.StateDir, "scratch", "run-shown")}
			host := shown{made: []string{f.home, filepath.Join(f.scratch, "home"), filepath.Join(f.scratch, "tmp")}}
			built, err := s.build("run-shown", spec, p, s.standIn(p.Name), f, host)
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
	if s.client.ConfigDir == "" {
		return profile.Load("")
	}
	return profile.Load(filepath.Join(s.client.ConfigDir, "agentos", "profiles"))
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
	ids, err := s.bind(ctx, st.store, principal.Want{Agent: name})
	if err != nil {
		return nil, err
	}
	run := newID("run")
	f, err := s.folders(run, p, sandboxplan.Strength(spec.GetStrength()))
	if err != nil {
		return nil, err
	}
	built, err := s.build(run, spec, p, bound{ids[principal.Agent], ids[principal.Shim]}, f, sandbox.Local{})
	if err == nil {
		var r *wrapped.Run
		if r, err = s.wrap(st, p, name, ids, built, f.scratch); err == nil {
			return r, nil
		}
	}
	if f.scratch != "" {
		_ = os.RemoveAll(f.scratch)
	}
	return nil, err
}

// wrap puts a planned run together.
func (s *Session) wrap(st *openState, p profile.Profile, name string, ids map[principal.Role]principal.Binding, built sandbox.Result, scratch string) (*wrapped.Run, error) {
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
	shim, err := s.program("agentos-shim")
	if err != nil {
		return nil, err
	}
	return wrapped.New(wrapped.Config{
		Plan: built.Plan, Name: name, Profile: p.Name, Agent: name, Owner: s.owner, Shim: ids[principal.Shim], Root: s.root,
		Policy: auth.Policies.Revision(), Notices: built.Notices, Scratch: scratch, Watch: built.Watch,
	}, wrapped.Deps{
		Gate: auth.Gate, Limits: auth.Ledger, Journal: st.store, Launcher: l, Status: procstatus.Read, Usage: cgroup.Usage, Shim: shim,
		Seal: func(ctx context.Context) []string { _, _, notices := sendOut(ctx, st.store, anchors); return notices }, NewID: newID, Now: s.now,
	}), nil
}

// folders are those of the state directory that a run may use.
type folders struct {
	home    string // of the profile, lasting
	scratch string // of the run, where there are no namespaces to hide a private one in
}

// folders makes what a run needs: the profile's persistent home when it is new,
// and a scratch folder for landlock-only.
func (s *Session) folders(run string, p profile.Profile, st sandboxplan.Strength) (folders, error) {
	var f folders
	mkdir := func(dir string) error {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fault.Wrap(err, fault.Unavailable, "check the state directory", "make a folder for the run")
		}
		if s.root {
			if err := os.Chown(dir, int(s.owner), -1); err != nil {
				return fault.Wrap(err, fault.Unavailable, "check the state directory", "give the run's folder to its owner")
			}
		}
		return nil
	}
	if p.Home == profile.Persistent {
		f.home = filepath.Join(s.cfg.StateDir, "homes", p.Name)
		if err := mkdir(f.home); err != nil {
			return f, err
		}
	}
	if st != sandboxplan.LandlockOnly && p.Strength != sandboxplan.LandlockOnly {
		return f, nil
	}
	f.scratch = filepath.Join(s.cfg.StateDir, "scratch", run)
	for _, dir := range []string{"home", "tmp"} {
		if err := mkdir(filepath.Join(f.scratch, dir)); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (s *Session) build(run string, spec *pb.RunSpec, p profile.Profile, ids bound, f folders, host sandbox.Host) (sandbox.Result, error) {
	strength := sandboxplan.Strength(spec.GetStrength())
	home, tmp := "", ""
	if p.Home == profile.Persistent {
		home = f.home
	}
	if strength == sandboxplan.LandlockOnly || strength == "" && p.Strength == sandboxplan.LandlockOnly {
		tmp = filepath.Join(f.scratch, "tmp")
		if home == "" {
			home = filepath.Join(f.scratch, "home")
		}
	}
	return sandbox.Build(sandbox.Request{
		Run: run, Profile: p, Command: spec.GetCommand(), Dir: spec.GetDir(), RW: spec.GetRw(), RO: spec.GetRo(), Deny: spec.GetDeny(), Sockets: spec.GetAllowSockets(),
		Limits: spec.GetLimits(), Strength: strength, TTY: spec.GetTty(), Rows: uint16(spec.GetRows()), Cols: uint16(spec.GetCols()),
		Identity: sandboxplan.Identity{
			UID: ids.agent.UID, GID: ids.agent.GID, OwnerUID: s.owner, OwnerGID: s.ownerGID(), User: "agent",
		},
		Owner: s.ownerOf(spec), StateDir: s.cfg.StateDir, Home: home, Tmp: tmp,
	}, host)
}

// ownerGID is the group of what a run writes: without root that of this process,
// since it can have no other.
func (s *Session) ownerGID() uint32 {
	if !s.root {
		return uint32(os.Getegid())
	}
	if u, err := user.LookupId(strconv.FormatUint(uint64(s.owner), 10)); err == nil {
		if n, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
			return uint32(n)
		}
	}
	return uint32(os.Getegid())
}

// ownerOf is the person behind a run, as their client describes them.
func (s *Session) ownerOf(spec *pb.RunSpec) sandbox.Owner {
	o := sandbox.Owner{Env: spec.GetEnv(), Path: spec.GetEnv()["PATH"], Home: s.client.Home}
	if o.Home == "" {
		o.Home = noHome
	}
	return o
}

// noHome is the home of somebody who has none, as in passwd(5) on Debian.
const noHome = "/nonexistent"
