package sandbox

import "agentos/internal/lib/sandboxplan"

// The plan is data that the launcher shares; its types live in lib/sandboxplan.
type (
	Plan      = sandboxplan.Plan
	Identity  = sandboxplan.Identity
	Mount     = sandboxplan.Mount
	MountKind = sandboxplan.MountKind
	File      = sandboxplan.File
	Limits    = sandboxplan.Limits
	Strength  = sandboxplan.Strength
)

// The plan's constants.
const (
	Version      = sandboxplan.Version
	Full         = sandboxplan.Full
	Rootless     = sandboxplan.Rootless
	LandlockOnly = sandboxplan.LandlockOnly
	Bind         = sandboxplan.Bind
	Tmpfs        = sandboxplan.Tmpfs
	Proc         = sandboxplan.Proc
	Dev          = sandboxplan.Dev
	Folder       = sandboxplan.Folder
	Link         = sandboxplan.Link
)
