package confine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"agentos/internal/host/seccomp"
)

// installFilter puts profile's allow list on every thread.
func installFilter(profile Profile) error {
	if err := seccomp.Install(policy(profile, os.Getpid())); err != nil {
		if errors.Is(err, seccomp.ErrInstall) {
			return fmt.Errorf("%w: %w", ErrSeccomp, err)
		}
		return fmt.Errorf("%w: profile %q: %w", ErrSeccomp, profile, err)
	}
	return nil
}

// policy is the allow list of profile for the process pid.
func policy(profile Profile, pid int) seccomp.Filter {
	f := seccomp.Filter{Allow: base(), Absent: absent(profile)}
	if profile != Loop {
		f.Allow = append(f.Allow, messages()...)
	}
	if profile == Tool || profile == ToolExec {
		f.Allow = append(f.Allow, files()...)
	}
	self := seccomp.Cond{Arg: 0, Op: seccomp.Equal, Value: uint64(pid)}
	f.When = []seccomp.Rule{seccomp.When("tgkill", self), fcntls(profile), prctls(profile)}
	switch profile {
	case Shim:
		f.When = append(f.When, terminals())
	case ToolExec:
		f.Allow = append(f.Allow, children()...)
		f.When = append(f.When, seccomp.When("clone", seccomp.Cond{Arg: 0, Op: seccomp.NoneSet, Value: cloneNew}), seccomp.When("kill", self))
		f.When = append(f.When, openNoCreate()...)
		return f
	case Tool:
		f.When = append(f.When, seccomp.When("openat", seccomp.Cond{Arg: 2, Op: seccomp.NoneSet, Value: writing}))
	}
	f.When = append(f.When, seccomp.When("clone", seccomp.Cond{Arg: 0, Op: seccomp.AnySet, Value: unix.CLONE_THREAD}, seccomp.Cond{Arg: 0, Op: seccomp.NoneSet, Value: cloneNew}),
		seccomp.When("mmap", seccomp.Cond{Arg: 2, Op: seccomp.NoneSet, Value: unix.PROT_EXEC}), seccomp.When("mprotect", seccomp.Cond{Arg: 2, Op: seccomp.NoneSet, Value: unix.PROT_EXEC}))
	return f
}
