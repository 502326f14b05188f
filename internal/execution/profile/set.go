package profile

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"agentos/internal/lib/fault"
)

//go:embed builtin/*.yaml
var builtin embed.FS

// BuiltIn is the File of a profile that came with the program.
const BuiltIn = "built in"

// Generic is the profile of programs that no other names.
const Generic = "generic"

// maxProfiles bounds a directory of profiles.
const maxProfiles = 256

// Set is every profile there is. It does not change and is safe for concurrent
// use.
type Set struct{ all []Profile }

// Load returns the built-in profiles and those of dir (files NAME.yaml, the name
// inside the same). One of dir replaces a built-in of its name and comes first
// when a command chooses. An empty dir, or one that does not exist, adds none.
// Only the owner, who is the caller or root, may be able to write the files:
// whoever can change a profile can widen a sandbox.
func Load(dir string) (*Set, error) {
	own, err := fromDir(dir)
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(builtin, "builtin/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list built-in profiles: %w", err)
	}
	s := &Set{all: own}
	for _, f := range files {
		data, err := builtin.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read built-in profile %q: %w", f, err)
		}
		p, err := Parse(f, data)
		if err != nil {
			return nil, err
		}
		p.File = BuiltIn
		if !slices.ContainsFunc(own, func(o Profile) bool { return o.Name == p.Name }) {
			s.all = append(s.all, p)
		}
	}
	slices.SortStableFunc(s.all, func(a, b Profile) int { return cmp.Compare(a.Name, b.Name) })
	return s, s.conflicts()
}

// conflicts refuses two profiles of one kind that one command would choose.
func (s *Set) conflicts() error {
	for i, p := range s.all {
		for _, o := range s.all[:i] {
			if (p.File == BuiltIn) != (o.File == BuiltIn) {
				continue
			}
			for _, c := range p.Commands {
				if slices.Contains(o.Commands, c) {
					return fault.New(fault.Conflict, "remove it from one of them", "load profiles: command %q is in %q and in %q", c, o.Name, p.Name)
				}
			}
		}
	}
	return nil
}

// All returns every profile in order of name. The caller must not change it.
func (s *Set) All() []Profile { return s.all }

// Get returns a profile by name.
func (s *Set) Get(name string) (Profile, error) {
	names := make([]string, len(s.all))
	for i, p := range s.all {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	next := "agentos profile list shows them"
	if best := Nearest(name, names); best != "" {
		next = "did you mean " + best + "? " + next
	}
	return Profile{}, fault.New(fault.NotFound, next, "find profile %q", clip(name))
}

// For returns the profile that a command chooses by its base name, else the
// generic one.
func (s *Set) For(argv0 string) (Profile, error) {
	base := path.Base(strings.ReplaceAll(argv0, `\`, "/"))
	for _, own := range []bool{true, false} {
		for _, p := range s.all {
			if (p.File != BuiltIn) == own && slices.Contains(p.Commands, base) {
				return p, nil
			}
		}
	}
	return s.Get(Generic)
}

func fromDir(dir string) ([]Profile, error) {
	if dir == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(dir) // names in it can't lead out of it
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "check the folder", "open profiles %q", dir)
	}
	defer root.Close()
	list, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "check the folder", "list profiles %q", dir)
	}
	var out []Profile
	for _, e := range list {
		base, yaml := strings.CutSuffix(e.Name(), ".yaml")
		if !yaml || strings.HasPrefix(base, ".") {
			continue
		}
		if len(out) == maxProfiles {
			return nil, fault.New(fault.Limit, "keep fewer", "load profiles %q: more than %d", dir, maxProfiles)
		}
		p, err := fromFile(root, dir, e.Name())
		if err != nil {
			return nil, err
		}
		if p.Name != base {
			return nil, fault.New(fault.Usage, "rename the file or change its name: line", "load profile %q: it is named %q", path.Join(dir, e.Name()), p.Name)
		}
		out = append(out, p)
	}
	return out, nil
}

func fromFile(root *os.Root, dir, name string) (Profile, error) {
	full := path.Join(dir, name)
	// What is opened is what is checked; opening a FIFO must not wait.
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return Profile{}, fault.Wrap(err, fault.Unavailable, "check the file", "open profile %q", full)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Profile{}, fault.Wrap(err, fault.Unavailable, "check the file", "look at profile %q", full)
	}
	if !st.Mode().IsRegular() || !ours(st) {
		return Profile{}, fault.New(fault.Denied, "make it a plain file of yours that only you can write: chmod go-w", "load profile %q: others could change it", full)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return Profile{}, fault.Wrap(err, fault.Unavailable, "check the disk", "read profile %q", full)
	}
	return Parse(full, data)
}
