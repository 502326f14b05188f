package sandbox

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// The system's view. /opt, /srv, /var, /boot, /sys and /run are absent: they
// hold services' data, sockets and secrets of software from elsewhere; --ro
// names what is needed of them.
func (b *builder) system() error {
	for _, p := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if err := b.show(p, true); err != nil {
			return err
		}
	}
	if _, ok := b.at["/usr"]; !ok {
		return fault.New(fault.Unavailable, "run it on a host whose programs are below /usr", "plan sandbox: no folder /usr")
	}
	if err := b.etc(); err != nil {
		return err
	}
	b.at["/dev"] = &Mount{Kind: Dev, Target: "/dev", Write: true, Why: "null, zero, full, random, urandom, tty and a private pts and shm"}
	if b.landlock() {
		tmp, err := b.place("the folder for temporary files", b.req.Tmp)
		if err != nil {
			return err
		}
		b.at[tmp] = &Mount{Kind: Bind, Source: tmp, Target: tmp, Write: true, Exec: true, Owned: true, Why: "private temporary files"}
		return nil
	}
	b.at["/proc"] = &Mount{Kind: Proc, Target: "/proc", Why: "the sandbox's own processes"}
	size := b.tmpBytes()
	b.at["/tmp"] = &Mount{Kind: Tmpfs, Target: "/tmp", Write: true, Exec: true, SizeBytes: size, Why: "private"}
	b.at["/var/tmp"] = &Mount{Kind: Tmpfs, Target: "/var/tmp", Write: true, Exec: true, SizeBytes: size, Why: "private"}
	b.at["/run"] = &Mount{Kind: Tmpfs, Target: "/run", Write: true, SizeBytes: 16 << 20, Why: "private; no socket of a service"}
	b.at["/var/run"] = &Mount{Kind: Link, Target: "/var/run", Source: "/run", Why: "as programs expect"}
	return nil
}

// etcNames are the files of /etc that programs of the system read and that hold
// nobody's secrets. What is left out on purpose: npmrc, pip.conf, maven, wgetrc,
// ssh, gitconfig (tokens and passwords of mirrors), profile.d and environment
// (the same in variables), ld.so.preload, sudoers, shadow, cron, systemd, pam.
func etcNames() []string {
	return []string{
		"ld.so.cache", "ld.so.conf", "ld.so.conf.d", // without them no library outside /usr/lib is found
		"alternatives",                                    // where /usr/bin/cc, java, editor, … lead
		"ca-certificates", "ssl/certs", "ssl/openssl.cnf", // public certificates; not ssl/private
		"pki/tls/certs", "pki/tls/cert.pem", "pki/ca-trust/extracted", // the same on Fedora
		"crypto-policies",       // OpenSSL and GnuTLS settings, Fedora
		"localtime", "timezone", // the time zone
		"os-release", "debian_version", "lsb-release", "redhat-release", "fedora-release", "arch-release", "alpine-release",
		"protocols", "services", "rpc", "ethertypes", // getprotobyname(3) and its kin
		"mime.types", "magic", "locale.alias", "inputrc", "terminfo", "fonts", "perl", "xml", "sgml",
		"mtab", // a link to /proc/self/mounts
	}
}

func (b *builder) etc() error {
	names := etcNames()
	list, err := b.host.ReadDir("/etc", 1<<14)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "run agentos doctor", "plan sandbox: list /etc")
	}
	for _, e := range list {
		// A JDK's settings and Python's site customisation are linked from /usr.
		if strings.HasPrefix(e.Name, "java-") && strings.HasSuffix(e.Name, "-openjdk") || strings.HasPrefix(e.Name, "python3") {
			names = append(names, e.Name)
		}
	}
	for _, n := range names {
		if err := b.show("/etc/"+n, false); err != nil {
			return err
		}
	}
	return nil
}

// show puts one place of the system into the view as the host has it: a link as
// a link, a folder or file as a read-only bind, nothing if it isn't there.
func (b *builder) show(p string, exec bool) error {
	e, ok := there(b.host, p)
	if !ok {
		return nil
	}
	// A link above it (/etc/pki → elsewhere) leads to another place.
	if parent, _, err := resolve(b.host, path.Dir(p)); err != nil || parent != path.Dir(p) {
		return nil
	}
	switch {
	case e.isLink():
		to, err := b.host.Readlink(p)
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "run agentos doctor", "plan sandbox: read link %q", p)
		}
		if !b.landlock() {
			b.at[p] = &Mount{Kind: Link, Target: p, Source: path.Clean(to), Why: "system"}
		}
	case e.isDir() || e.isRegular():
		b.at[p] = &Mount{Kind: Bind, Source: p, Target: p, Exec: exec, Why: "system"}
	}
	return nil
}

// targets lists the places of the plan, parents before children.
func (b *builder) targets() []string { return slices.Sorted(maps.Keys(b.at)) }

// emit writes the mounts down with the folders that hold them.
func (b *builder) emit() error {
	if !b.landlock() {
		for _, p := range append(b.targets(), b.filePaths()...) {
			for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
				if b.at[dir] != nil {
					continue
				}
				if up := b.enclosing(dir); up != nil && up.Kind == Bind {
					break // the folder is there, in the bind above it
				}
				b.at[dir] = &Mount{Kind: Folder, Target: dir, Why: "holds " + path.Base(p)}
			}
		}
	}
	if len(b.at) > sandboxplan.MaxMounts {
		return fault.New(fault.Limit, "deny whole folders, or grant fewer", "plan sandbox: %d mounts, at most %d", len(b.at), sandboxplan.MaxMounts)
	}
	for _, p := range b.targets() {
		b.plan.Mounts = append(b.plan.Mounts, *b.at[p])
	}
	return nil
}

func sortEntries(list []Entry) {
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
}

// special reports whether an entry is a socket or a FIFO: a door to whoever
// holds the other end.
func special(e Entry) bool { return e.Type&(fs.ModeSocket|fs.ModeNamedPipe) != 0 }
