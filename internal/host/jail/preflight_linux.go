package jail

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentos/internal/host/confine"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// preflight asks for what every strength needs, before anything is made.
func (j *Jail) preflight() error {
	errnoAction := uint32(unix.SECCOMP_RET_ERRNO)
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&errnoAction))); e != 0 {
		return missing(e, "seccomp", "boot a kernel with CONFIG_SECCOMP_FILTER", "ask the kernel for syscall filters")
	}
	if j.landlock = confine.LandlockABI(); j.landlock == 0 {
		return missing(unix.EOPNOTSUPP, "landlock", "enable CONFIG_SECURITY_LANDLOCK and add landlock to lsm= on the kernel's command line", "ask the kernel for Landlock")
	}
	// Who is not mapped is shown as this user: nobody may be it, Check takes 65534
	// for it, and a host that has another one is not a host we know.
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return missing(err, "overflowuid", "mount proc at /proc, and let this program read it", "read the overflow user")
	}
	if s := strings.TrimSpace(string(b)); s != "65534" {
		return missing(unix.EINVAL, "overflowuid", "run `sysctl kernel.overflowuid=65534`", "read the overflow user: it is %.20s", s)
	}
	return nil
}

func missing(err error, step, next, format string, args ...any) *Error {
	return &Error{step, fault.Wrap(err, fault.Unavailable, next, format, args...)}
}

// check holds a plan against who this process is.
func (j *Jail) check(p *sandboxplan.Plan) error {
	uid, gid := os.Getuid(), os.Getgid()
	switch p.Strength {
	case sandboxplan.Full:
		if os.Geteuid() != 0 {
			return missing(unix.EPERM, "root", "run it as root, or with --strength rootless", "give the agent a UID of its own")
		}
	case sandboxplan.Rootless, sandboxplan.LandlockOnly:
		if int(p.Identity.UID) != uid || int(p.Identity.GID) != gid {
			return refused("identity", "run it as that user, or with --strength full", "make a %s sandbox for user %d, group %d: this is user %d, group %d",
				p.Strength, p.Identity.UID, p.Identity.GID, uid, gid)
		}
	}
	if p.Strength == sandboxplan.LandlockOnly && j.landlock < 6 {
		return missing(unix.EOPNOTSUPP, "landlock", "boot linux 6.12 or newer, or use --strength rootless", "confine signals: Landlock ABI %d, 6 is needed without namespaces", j.landlock)
	}
	if p.Strength == sandboxplan.LandlockOnly {
		if err := reaper(); err != nil {
			return missing(err, "subreaper", "boot a kernel with CONFIG_PROC_CHILDREN, or use --strength rootless", "watch over processes without a PID namespace")
		}
	}
	if p.Strength == sandboxplan.LandlockOnly && p.Nested {
		return refused("nested sandboxes", "use --strength rootless or full", "allow nested sandboxes without a mount namespace around them")
	}
	return nil
}

// sysctls that refuse user namespaces, with what helps.
var sysctls = []struct{ file, refuses, next string }{
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "as root run `sysctl kernel.unprivileged_userns_clone=1`, or use --strength landlock-only"},
	{"/proc/sys/user/max_user_namespaces", "0", "as root run `sysctl user.max_user_namespaces=10000`, or use --strength landlock-only"},
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "as root load the shipped AppArmor profile (`apparmor_parser -r /etc/apparmor.d/agentos-launcher`), or use --strength landlock-only"},
}

// userns returns what helps on a host that refuses user namespaces, or "".
func userns() (name, next string) {
	for _, s := range sysctls {
		if b, err := os.ReadFile(s.file); err == nil && strings.TrimSpace(string(b)) == s.refuses {
			return strings.TrimPrefix(s.file, "/proc/sys/"), s.next
		}
	}
	return "", ""
}

// explain turns the failure of clone into the primitive that is missing.
func explain(err error, strength sandboxplan.Strength) error {
	if strength != sandboxplan.Rootless {
		return failed(err, "namespaces", "make them")
	}
	if name, next := userns(); next != "" {
		return missing(err, "user namespace", next, "make one: %s refuses it", strings.ReplaceAll(name, "/", "."))
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return missing(err, "user namespace", "allow user namespaces where this runs (a container's seccomp profile or an LSM refuses them), or use --strength landlock-only", "make one")
	}
	return failed(err, "user namespace", "make namespaces")
}

// hint adds the AppArmor rule's remedy to steps that it breaks: it lets the
// namespace be made, and takes the capabilities in it away.
func hint(e *Error) error {
	if os.Geteuid() == 0 || (e.Err.Kind != fault.Denied && e.Err.Kind != fault.Unavailable) {
		return e
	}
	if name, next := userns(); next != "" {
		e.Err.Next = next
		e.Err.Msg = fmt.Sprintf("%s (%s)", e.Err.Msg, strings.ReplaceAll(name, "/", "."))
	}
	return e
}
