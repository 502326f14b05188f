package sandbox

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"agentos/internal/execution/profile"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// Request is what a plan is made from. Paths are the host's, absolute.
type Request struct {
	Run      string
	Profile  profile.Profile
	Command  []string
	Dir      string            // the caller's working directory: the workspace
	RW       []string          // --rw
	RO       []string          // --ro
	Deny     []string          // --deny
	Sockets  []string          // --allow-sockets: trees whose sockets and FIFOs may be reached
	Limits   map[string]string // --limit
	Strength Strength          // empty: the profile's, else the strongest for this identity
	TTY      bool
	Rows     uint16
	Cols     uint16

	Identity Identity // Home is filled in
	Owner    Owner
	StateDir string // AgentOS's own, which no sandbox shows
	// Home is the folder that is the agent's home: the caller makes it, owned by
	// the owner, one for each profile and owner, or an empty one that it removes
	// afterwards. Empty: private and in memory, or not at all with a profile
	// whose home is persistent.
	Home string
	Tmp  string // landlock-only: a private folder for temporary files
}

// Owner is the person whose files these are.
type Owner struct {
	Home  string            // folder
	Path  string            // PATH, to find the command
	Env   map[string]string // of which a profile may pass some on
	Name  string            // for commits; empty: the agent's own
	Email string
}

// Result is a plan with what a person should know about it.
type Result struct {
	Plan    Plan
	Notices []string
	// Watch are paths that are absent when the run starts and through which Git
	// would run something: whoever ends the run looks whether one has appeared.
	Watch []string
}

// Build makes the plan. It looks at the host and changes nothing; with the same
// answers of the host it makes the same plan. Errors are faults: Usage and
// Denied for what was asked, NotFound for what is not there, Limit for what is
// too large. The plan it returns has passed Check.
func Build(req Request, h Host) (Result, error) {
	b := &builder{req: req, host: h, prof: req.Profile, at: map[string]*Mount{}, allowed: map[string]bool{}}
	b.plan = Plan{
		Version: Version, Run: req.Run, Command: slices.Clone(req.Command), TTY: req.TTY, Rows: req.Rows, Cols: req.Cols,
		Identity: req.Identity, Hostname: "agentos", Nested: req.Profile.Nested,
	}
	steps := []func() error{
		b.strength, b.limits, b.workspace, b.system, b.home, b.grants, b.program, b.git,
		b.denies, b.foreign, b.emit, b.environment, b.files,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Result{}, err
		}
	}
	b.network()
	if err := b.plan.Check(); err != nil {
		return Result{}, err
	}
	return Result{Plan: b.plan, Notices: b.notices, Watch: b.watch}, nil
}

// builder collects one plan.
type builder struct {
	req     Request
	prof    profile.Profile
	host    Host
	plan    Plan
	notices []string
	watch   []string

	dir     string            // the workspace, resolved
	at      map[string]*Mount // by target
	allowed map[string]bool   // trees in which sockets may be reached
	roots   []string          // trees granted by profile, flag or as the workspace
}

func (b *builder) note(format string, args ...any) {
	if n := sprintf(format, args...); !slices.Contains(b.notices, n) {
		b.notices = append(b.notices, n)
	}
}

func (b *builder) landlock() bool { return b.plan.Strength == LandlockOnly }

func (b *builder) strength() error {
	s := b.req.Strength
	if s == "" {
		s = b.prof.Strength
	}
	if s == "" {
		s = Full
		if b.req.Identity.UID == b.req.Identity.OwnerUID {
			s = Rootless
		}
	}
	b.plan.Strength = s
	if s == LandlockOnly {
		b.note("landlock-only: no namespaces, so other processes, the network's loopback and /proc are shared with the host; this is the weakest strength")
		if b.req.Tmp == "" || b.req.Home == "" {
			return fault.New(fault.Usage, "give the run its folders", "plan landlock-only: no folder for the home or for temporary files")
		}
	}
	return nil
}

const defaultTmp = 1 << 30 // bytes of /tmp when nobody says how many

func (b *builder) limits() error {
	l := b.prof.Limits
	for _, name := range slices.Sorted(maps.Keys(b.req.Limits)) {
		if err := l.Set(name, b.req.Limits[name]); err != nil {
			return err
		}
	}
	b.plan.Limits = l
	return nil
}

// workspace finds the folder that the agent works in and refuses folders that
// hold too much.
func (b *builder) workspace() error {
	dir, err := b.place("the working directory", b.req.Dir)
	if err != nil {
		return err
	}
	if e, ok := there(b.host, dir); !ok || !e.isDir() {
		return fault.New(fault.Usage, "go to a folder", "plan sandbox: the working directory %q is no folder", dir)
	}
	if err := b.tooWide("the workspace", dir); err != nil {
		return err
	}
	b.dir = dir
	b.plan.Dir = dir
	return nil
}

// place resolves a path that a person gave.
func (b *builder) place(what, p string) (string, error) {
	if err := sandboxplan.CheckPath(p); err != nil {
		return "", err
	}
	real, _, err := resolve(b.host, p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "check the spelling, or make it first", "plan sandbox: %s %q does not exist", what, p)
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Usage, "check the path", "plan sandbox: look at %s %q", what, p)
	}
	if tree := b.planted(p, real); tree != "" {
		return "", fault.New(fault.Denied, "name "+real+" itself, if that is what you mean",
			"plan sandbox: %s %q leads to %q by a link inside %q, which an agent may have left there", what, p, real, tree)
	}
	if real != p {
		b.note("%s %s is %s; it has that path inside", what, p, real)
	}
	return real, nil
}

// planted finds the tree that agents write in, or may have written in before,
// through which path p leads out to real, or returns "".
func (b *builder) planted(p, real string) string {
	if b.dir == "" {
		return "" // the workspace itself: the person is in it
	}
	for _, tree := range append([]string{b.req.Dir}, b.req.RW...) {
		to, _, err := resolve(b.host, tree)
		for _, t := range []string{tree, to} {
			if err == nil && t != p && sandboxplan.Below(p, t) && !sandboxplan.Below(real, to) {
				return t
			}
		}
	}
	return ""
}

// tooWide refuses folders whose grant would hand out other things as well.
func (b *builder) tooWide(what, p string) error {
	const next = "go to, or name, a folder that holds only what the agent should have"
	home := b.real(b.req.Owner.Home)
	switch {
	case sandboxplan.Whole(p):
		return fault.New(fault.Denied, next, "plan sandbox: %s %q holds other people's things", what, p)
	case home != "" && sandboxplan.Below(home, p):
		return fault.New(fault.Denied, next, "plan sandbox: %s %q is, or holds, your whole home with its keys and logins", what, p)
	}
	if state := b.real(b.req.StateDir); state != "" && (sandboxplan.Below(state, p) || sandboxplan.Below(p, state)) {
		return fault.New(fault.Denied, next, "plan sandbox: %s %q overlaps AgentOS's state %q", what, p, state)
	}
	return nil
}

// real resolves a path as far as it exists; empty stays empty.
func (b *builder) real(p string) string {
	if p == "" || !path.IsAbs(p) {
		return ""
	}
	real, err := resolveMissing(b.host, path.Clean(p))
	if err != nil {
		return path.Clean(p)
	}
	return real
}

// network says what is recorded and not given.
func (b *builder) network() {
	if len(b.prof.Network) > 0 {
		b.note("no network in this version; profile %s would like to reach %s", b.prof.Name, strings.Join(b.prof.Network, ", "))
	}
}
