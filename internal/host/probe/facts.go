package probe

import (
	"fmt"
	"strconv"
	"strings"
)

// Facts renders r in a fixed order: the host, then the kernel's features.
func (r Raw) Facts() []Fact {
	return append([]Fact{
		{"kernel", Info, or(r.Release), "", ""},
		{"architecture", archState(r.Arch), r.Arch, "", next(archState(r.Arch), "run on amd64 or arm64")},
		{"distribution", Info, or(r.Distribution), "", ""},
		{"cores", Info, strconv.Itoa(r.Cores), "", ""},
		{"memory", Info, fmt.Sprintf("%d MiB", r.Memory>>20), "", ""},
		{"virtualization", Info, word(r.Virtual, "none seen"), "", ""},
		r.init(), r.journal(),
	}, r.kernel()...)
}

func (r Raw) kernel() []Fact {
	return []Fact{
		r.landlockFact(),
		yes("seccomp filters", r.Seccomp, Unsafe, "use a kernel with CONFIG_SECCOMP_FILTER"),
		yes("seccomp user notification", r.UserNotify, Absent, "use linux 5.0 or newer"),
		yes("no_new_privs", r.NoNewPrivs, Unsafe, "use linux 3.5 or newer"),
		yes("pidfd", r.PidfdOpen, Reduced, "use linux 5.3 or newer"),
		yes("close_range", r.CloseRange, Unsafe, "use linux 5.11 or newer"),
		r.userNS(), r.cgroup(),
		yes("overlayfs", r.Overlay, Absent, "load the overlay module"),
		yes("btrfs", r.Btrfs, Absent, "load the btrfs module to get snapshots"),
		yes("idmapped mounts", r.IDMap, Absent, "use linux 5.12 or newer"),
		{"security modules", Info, or(r.LSM), lsmDetail(r.LSM), ""},
		r.bpf(), r.ptrace(), r.ioUring(),
	}
}

func (r Raw) landlockFact() Fact {
	l := r.landlock()
	f := Fact{"landlock", l.State, fmt.Sprintf("ABI %d", r.LandlockABI), l.Detail, ""}
	if l.State == Unsafe {
		f.Value, f.Next = "none", "use linux 5.13 or newer with landlock in its lsm= list"
	} else if l.State == Reduced {
		f.Next = "use linux 6.12 or newer"
	}
	return f
}

func (r Raw) init() Fact {
	if r.Systemd {
		return Fact{"init", OK, "systemd", "", ""}
	}
	return Fact{"init", Absent, or(r.Init), "systemd doesn't run: tools that ask it answer \"unavailable\"", "boot with systemd to inspect services"}
}

func (r Raw) journal() Fact {
	if r.Journal {
		return Fact{"journal", OK, "socket present", "", ""}
	}
	return Fact{"journal", Absent, "none", "audit checkpoints can't be anchored in the journal", "set a file as anchor"}
}

func (r Raw) userNS() Fact {
	f := Fact{"user namespaces", OK, "work", "", ""}
	switch {
	case r.UserNS != "":
		f = Fact{"user namespaces", Absent, "refused", r.UserNS, "set user.max_user_namespaces, or load the AppArmor profile"}
	case r.AppArmorUserNS == 1:
		f.State, f.Detail, f.Next = Reduced, "AppArmor restricts them for ordinary users", "load the AppArmor profile"
	}
	return f
}

func (r Raw) cgroup() Fact {
	list := strings.Join(r.Controllers, " ")
	switch r.Cgroup {
	case "v2":
		return Fact{"control groups", OK, "v2", "controllers: " + word(list, "none"), ""}
	case "hybrid":
		return Fact{"control groups", Reduced, "hybrid", "controllers in v2: " + word(list, "none") + "; in v1: " + word(strings.Join(r.ControllersV1, " "), "none"),
			"boot with systemd.unified_cgroup_hierarchy=1"}
	case "v1":
		return Fact{"control groups", Reduced, "v1", "controllers: " + word(strings.Join(r.ControllersV1, " "), "none"), "boot with systemd.unified_cgroup_hierarchy=1"}
	default:
		return Fact{"control groups", Absent, "none", "", "mount cgroup2 on /sys/fs/cgroup"}
	}
}

func (r Raw) bpf() Fact {
	switch r.UnprivBPF {
	case 0:
		return Fact{"unprivileged bpf", Unsafe, "allowed", "any user may load programs into the kernel", "set kernel.unprivileged_bpf_disabled=2"}
	case 1, 2:
		return Fact{"unprivileged bpf", OK, "refused", "", ""}
	default:
		return Fact{"unprivileged bpf", Info, "unknown", "", ""}
	}
}

func (r Raw) ptrace() Fact {
	switch {
	case r.Ptrace > 0:
		return Fact{"ptrace scope", OK, strconv.Itoa(r.Ptrace), "", ""}
	case r.Ptrace == 0:
		return Fact{"ptrace scope", Reduced, "0", "a user's processes may trace each other; ours are not dumpable", "set kernel.yama.ptrace_scope=1"}
	default:
		return Fact{"ptrace scope", Info, "no yama", "a user's processes may trace each other; ours are not dumpable", ""}
	}
}

func (r Raw) ioUring() Fact {
	detail := "refused to every process of a run in any case"
	switch r.IOURing {
	case 0:
		return Fact{"io_uring", Info, "allowed", detail, ""}
	case 1, 2:
		return Fact{"io_uring", Info, "restricted", detail, ""}
	default:
		return Fact{"io_uring", Info, "unknown", detail, ""}
	}
}

func yes(name string, has bool, missing State, do string) Fact {
	if has {
		return Fact{name, OK, "yes", "", ""}
	}
	return Fact{name, missing, "no", "", do}
}

func archState(a string) State {
	if a == "amd64" || a == "arm64" {
		return OK
	}
	return Unsafe
}

func next(s State, do string) string {
	if s == OK {
		return ""
	}
	return do
}

func lsmDetail(s string) string {
	if s == "" {
		return "securityfs is not mounted"
	}
	return ""
}

func or(s string) string { return word(s, "unknown") }

func word(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
