//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/sandboxplan"
)

// identity: who this is, and that it has no right besides.
func (c *checker) identity() {
	id, want := c.m.identity(), c.plan.Identity
	three := func(n [3]int) string { return fmt.Sprintf("%d", n[0]) + differing(n) }
	c.add("uid", fmt.Sprint(want.UID), three(id.uids), "real, effective, saved")
	c.add("gid", fmt.Sprint(want.GID), three(id.gids), "real, effective, saved")
	if c.plan.Strength == sandboxplan.Full {
		groups := "none"
		if len(id.groups) > 0 {
			groups = fmt.Sprint(id.groups)
		}
		c.add("further groups", "none", groups, "")
	}
	c.add("capabilities", "none", id.caps, "permitted, effective, inheritable and ambient")
	if !c.bare { // only who has a capability may drop one there, and no_new_privs keeps it from coming back
		c.add("bounding set", "0", fmt.Sprint(id.bounding), "capabilities")
	}
	c.add("no_new_privs", "1", fmt.Sprint(id.nnp), "")
	c.add("seccomp mode", "2", fmt.Sprint(id.seccomp), "2 is a filter")
	host, dir, env := c.m.names()
	if !c.bare {
		c.add("host name", c.plan.Hostname, host, "")
	}
	c.add("working directory", c.plan.Dir, dir, "")
	wanted := map[string]bool{}
	for _, e := range c.plan.Env {
		name, _, _ := strings.Cut(e, "=")
		wanted[name] = true
	}
	var got []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		got = append(got, name)
	}
	c.compare("variables", wanted, nil, got)
}

func differing(n [3]int) string {
	if n[0] == n[1] && n[1] == n[2] {
		return ""
	}
	return fmt.Sprintf(", %d, %d", n[1], n[2])
}

// network: only loopback, or no socket at all where the network is the host's.
func (c *checker) network() {
	families := []struct {
		name                   string
		domain, kind, protocol int
	}{
		{"AF_PACKET socket", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"AF_VSOCK socket", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw socket, IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	}
	if c.bare {
		families = append(families, []struct {
			name                   string
			domain, kind, protocol int
		}{
			{"AF_INET socket", unix.AF_INET, unix.SOCK_STREAM, 0},
			{"AF_INET6 socket", unix.AF_INET6, unix.SOCK_STREAM, 0},
			{"AF_UNIX socket", unix.AF_UNIX, unix.SOCK_STREAM, 0},
		}...)
	}
	for _, f := range families {
		err := c.m.socket(f.domain, f.kind, f.protocol)
		c.add(f.name, "refused", outcome(err), because(err))
	}
	if c.bare {
		return
	}
	names, err := c.m.interfaces()
	kernel := strings.Join(slices.Sorted(slices.Values(names)), ", ")
	if err != nil || kernel == "" {
		kernel = "can't be listed"
	}
	c.add("network interfaces", "lo", kernel, because(err))
	err = c.m.loopback()
	kernel = "works"
	if err != nil {
		kernel = "does not work"
	}
	c.add("loopback", "works", kernel, because(err))
	for _, v6 := range []bool{false, true} {
		err, name := c.m.connect(v6), "connect to the internet"
		if v6 {
			name += ", IPv6"
		}
		kernel := "fails at once"
		if err == nil {
			kernel = "under way"
		}
		c.add(name, "fails at once", kernel, because(err))
	}
}

// processes: a PID namespace of its own, and nobody else in sight.
func (c *checker) processes() {
	if c.bare {
		return // /proc is out of reach, which absent has seen
	}
	others, ppid, err := c.m.processes()
	kernel := "the sandbox's"
	if ppid != 1 {
		kernel = fmt.Sprintf("another: the parent is %d", ppid)
	}
	c.add("first process", "the sandbox's", kernel, "")
	if err != nil {
		c.add("other processes", "0", "can't be listed", because(err))
		return
	}
	c.add("other processes", "0", fmt.Sprint(others), "in /proc")
}

// calls are system calls that a sandbox never lets through. Each is made so that
// it fails by itself once the kernel has agreed to it.
func calls() []string {
	return []string{
		"unshare(CLONE_NEWUSER)", "mount", "ptrace", "process_vm_readv", "bpf", "io_uring_setup", "keyctl", "perf_event_open",
		"userfaultfd", "chmod u+s", "ioctl(TIOCSTI)", "setresuid(0)",
	}
}

func (c *checker) calls() {
	scratch := ""
	for _, m := range c.plan.Mounts {
		if m.Write && (m.Kind == sandboxplan.Tmpfs || m.Kind == sandboxplan.Bind && sandboxplan.Below(c.plan.Identity.Home, m.Target)) {
			scratch = m.Target
			if m.Target == c.plan.Identity.Home || m.Target == "/tmp" {
				break
			}
		}
	}
	for _, name := range calls() {
		if name == "unshare(CLONE_NEWUSER)" && c.plan.Nested || name == "chmod u+s" && scratch == "" {
			continue
		}
		err := c.m.call(name, scratch)
		c.add(name, "refused", outcome(err), because(err))
	}
	if c.bare {
		err := c.m.call("kill(1)", "")
		c.add("signal to the host's first process", "refused", outcome(err), because(err))
	}
}
