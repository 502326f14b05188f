package sandboxplan

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentos/internal/lib/fault"
)

// Bounds of a plan. A plan travels in one message of the launch wire (1 MiB).
const (
	MaxMounts   = 2048
	MaxFiles    = 64
	MaxFileData = 64 << 10  // bytes of one synthetic file
	MaxArgs     = 4096      // arguments of the command
	MaxText     = 512 << 10 // bytes of all arguments, variables, paths and files
	maxPath     = 4095      // PATH_MAX without its NUL
	maxName     = 255       // NAME_MAX
)

// Upper bounds of limits: beyond them a number is a mistake, not a limit.
const (
	MaxPIDs    = 4 << 20
	MaxBytes   = 1 << 50
	MaxPercent = 100 * 4096
	MinMemory  = 8 << 20 // bytes: below it not even the first process starts
	MinFiles   = 16      // open files a program needs to start
	MinPIDs    = 2       // the first process and the command
)

// Check refuses a plan that could not be enforced as written or that would hand
// out what a sandbox never gets. It looks at the plan alone, at no file. Errors
// are faults; the first one found is returned. Safe for concurrent use.
func (p *Plan) Check() error {
	checks := []func() error{
		p.checkHead, p.checkCommand, p.checkEnv, p.checkIdentity, p.Limits.check,
		p.checkMounts, p.checkStrength, p.checkFiles, p.checkPlaces, p.checkSize,
	}
	for _, c := range checks {
		if err := c(); err != nil {
			return err
		}
	}
	return nil
}

func refuse(next, format string, args ...any) error {
	return fault.New(fault.Usage, next, format, args...)
}

func (p *Plan) checkHead() error {
	if p.Version != Version {
		return fault.New(fault.Conflict, "use the same version of every AgentOS program", "read plan: version %d, not %d", p.Version, Version)
	}
	if !isName(p.Run, 64) {
		return refuse("give letters, digits, - and _", "read plan: run %q is no identifier", clip(p.Run))
	}
	switch p.Strength {
	case Full, Rootless, LandlockOnly:
	default:
		return refuse("use full, rootless or landlock-only", "read plan: unknown strength %q", clip(string(p.Strength)))
	}
	if !isHostname(p.Hostname) {
		return refuse("give one name of at most 63 letters, digits and -", "read plan: host name %q", clip(p.Hostname))
	}
	return nil
}

func (p *Plan) checkCommand() error {
	if len(p.Command) == 0 || p.Command[0] == "" {
		return refuse("name a program after --", "read plan: no command")
	}
	if len(p.Command) > MaxArgs {
		return fault.New(fault.Limit, "put the arguments in a file", "read plan: %d arguments, at most %d", len(p.Command), MaxArgs)
	}
	for i, a := range p.Command {
		if strings.IndexByte(a, 0) >= 0 {
			return refuse("remove the NUL byte", "read plan: argument %d holds a NUL byte", i)
		}
	}
	return nil
}

func (p *Plan) checkEnv() error {
	seen := map[string]bool{}
	for _, e := range p.Env {
		name, value, ok := strings.Cut(e, "=")
		switch {
		case !ok || !IsEnvName(name):
			return refuse("write NAME=value", "read plan: environment entry %q has no valid name", clip(name))
		case strings.IndexByte(value, 0) >= 0:
			return refuse("remove the NUL byte", "read plan: variable %q holds a NUL byte", name)
		case seen[name]:
			return refuse("set it once", "read plan: variable %q is set twice", name)
		case SecretName(name):
			// Spec: C-11. The value is never shown.
			return refuse("secrets don't enter a sandbox; log in inside it, its home persists", "read plan: variable %q is named like a secret", name)
		}
		seen[name] = true
	}
	return nil
}

func (p *Plan) checkIdentity() error {
	id := p.Identity
	const nobody, none = 65534, ^uint32(0)
	// Spec: OSA-02. 65534 is what the kernel shows for whoever is not mapped.
	for _, n := range []struct {
		what string
		id   uint32
	}{{"UID", id.UID}, {"GID", id.GID}} {
		if n.id == 0 || n.id == nobody || n.id == none {
			return fault.New(fault.Denied, "run as an ordinary user, or let the daemon choose an agent's identity", "read plan: an agent can't have %s %d", n.what, n.id)
		}
	}
	if id.OwnerUID == none || id.OwnerGID == none {
		return refuse("name the owner of the files", "read plan: no owner")
	}
	if !isUser(id.User) {
		return refuse("give a lower-case name of at most 32 characters that isn't root", "read plan: user name %q", clip(id.User))
	}
	return nil
}

func (l Limits) check() error {
	for _, b := range []struct {
		name     string
		n        int64
		min, max int64
	}{
		{"pids", l.PIDs, MinPIDs, MaxPIDs},
		{"memory", l.MemoryBytes, MinMemory, MaxBytes},
		{"cpu", l.CPUPercent, 1, MaxPercent},
		{"files", l.OpenFiles, MinFiles, 1 << 30},
		{"file", l.FileBytes, 1, MaxBytes},
		{"tmp", l.TmpBytes, 4096, MaxBytes},
	} {
		if b.n != 0 && (b.n < b.min || b.n > b.max) {
			return refuse(fmt.Sprintf("give %s a value from %d to %d, or 0 for the host's own", b.name, b.min, b.max), "read plan: limit %s is %d", b.name, b.n)
		}
	}
	return nil
}

// checkStrength holds the plan against what its strength can do at all.
func (p *Plan) checkStrength() error {
	id := p.Identity
	if p.Strength == Full {
		if id.UID == id.OwnerUID {
			return refuse("give the agent a UID of its own, or ask for --strength rootless", "read plan: at full strength the agent can't be its owner, UID %d", id.UID)
		}
		return nil
	}
	if id.UID != id.OwnerUID || id.GID != id.OwnerGID {
		return refuse("ask for --strength full, which needs root", "read plan: %s runs as its owner, UID %d, not as %d", p.Strength, id.OwnerUID, id.UID)
	}
	if p.Strength == LandlockOnly {
		return p.checkLandlock()
	}
	return nil
}

// checkLandlock: without namespaces paths are the host's own, nothing private
// can be made, and what is granted to a folder is granted to all below it.
func (p *Plan) checkLandlock() error {
	const next = "ask for --strength rootless or full"
	if len(p.Files) > 0 {
		return refuse(next, "read plan: landlock-only can't make %q", clip(p.Files[0].Path))
	}
	for i, m := range p.Mounts {
		if m.Kind == Dev {
			continue // the listed devices of the host
		}
		if m.Kind != Bind || m.Source != m.Target {
			return refuse(next, "read plan: landlock-only can't show %s at %q", m.Kind, clip(m.Target))
		}
		for _, o := range p.Mounts[:i] {
			if o.Kind == Bind && Below(m.Target, o.Target) && (o.Write && !m.Write || o.Exec && !m.Exec) {
				return refuse(next, "read plan: landlock-only can't narrow %q inside %q", clip(m.Target), clip(o.Target))
			}
		}
	}
	return nil
}

func (p *Plan) checkSize() error {
	n := 0
	for _, list := range [][]string{p.Command, p.Env} {
		for _, s := range list {
			n += len(s) + 3
		}
	}
	for _, m := range p.Mounts {
		n += len(m.Source) + len(m.Target) + len(m.Why) + 128
	}
	for _, f := range p.Files {
		n += len(f.Path) + len(f.Data) + len(f.Why) + 64
	}
	if n > MaxText {
		return fault.New(fault.Limit, "grant whole folders instead of many paths, pass long arguments in a file", "read plan: %d bytes, at most %d", n, MaxText)
	}
	return nil
}

// Below reports whether clean path p is root or below it.
func Below(p, root string) bool {
	return p == root || root == "/" && strings.HasPrefix(p, "/") || strings.HasPrefix(p, root) && len(p) > len(root) && p[len(root)] == '/'
}

// CheckPath refuses a path that is not absolute and clean, that holds control
// characters or invalid UTF-8 (they would spoof what people are shown), or that
// the kernel would not take.
func CheckPath(p string) error {
	bad := func(why string) error {
		return refuse("give an absolute path without .. and control characters", "read plan: path %q %s", clip(p), why)
	}
	switch {
	case !strings.HasPrefix(p, "/"):
		return bad("is not absolute")
	case path.Clean(p) != p:
		return bad("is not clean")
	case len(p) > maxPath:
		return bad("is too long")
	case !utf8.ValidString(p):
		return bad("is not UTF-8")
	case strings.ContainsFunc(p, unprintable):
		return bad("holds a control character")
	}
	for _, c := range strings.Split(p, "/") {
		if len(c) > maxName {
			return bad("has a name that is too long")
		}
	}
	return nil
}

// unprintable: controls, and the format characters that reorder or hide text.
func unprintable(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }

// clip keeps an untrusted text short in an error; %q escapes it.
func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
