package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"agentos/internal/lib/sandboxplan"
)

// environment is made from nothing: fixed names, the profile's values, and the
// caller's variables that the profile lists. Spec: C-10, C-11.
func (b *builder) environment() error {
	home := b.plan.Identity.Home
	env := map[string]string{
		"HOME": home, "USER": b.req.Identity.User, "LOGNAME": b.req.Identity.User,
		"SHELL": b.shell(), "PATH": b.insideDirs(), "PWD": b.dir, "TMPDIR": "/tmp", "LANG": "C.UTF-8",
		"AGENTOS_RUN": b.req.Run,
	}
	if b.landlock() {
		env["TMPDIR"] = b.real(b.req.Tmp)
	}
	for _, name := range slices.Sorted(maps.Keys(b.req.Owner.Env)) {
		v := b.req.Owner.Env[name]
		if !b.passes(name) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(v) > 4096 {
			continue
		}
		if sandboxplan.SecretName(name) {
			b.note("%s is not passed on: it is named like a secret", name)
			continue
		}
		env[name] = v
	}
	expand := strings.NewReplacer("$WORKSPACE", b.dir, "$HOME", home)
	for _, name := range slices.Sorted(maps.Keys(b.prof.Set)) {
		env[name] = expand.Replace(b.prof.Set[name])
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		b.plan.Env = append(b.plan.Env, name+"="+env[name])
	}
	return nil
}

// passes reports whether the profile's list names a variable. What the sandbox
// sets is nobody's to pass.
func (b *builder) passes(name string) bool {
	if !sandboxplan.IsEnvName(name) || slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "TMPDIR", "AGENTOS_RUN"}, name) {
		return false
	}
	return slices.ContainsFunc(b.prof.Pass, func(p string) bool {
		prefix, many := strings.CutSuffix(p, "*")
		return p == name || many && strings.HasPrefix(name, prefix)
	})
}

func (b *builder) shell() string {
	if _, ok := b.executable("/bin/bash"); ok {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// synthetic are the files of /etc that say who and where one is. They are made
// for the sandbox: the host's would list its users, names and servers.
func (b *builder) synthetic() []File {
	id := b.req.Identity
	name, mail := b.req.Owner.Name, b.req.Owner.Email
	if !plainText(name) || !plainText(mail) || name == "" || mail == "" {
		name, mail = "Agent", "agent@localhost"
	}
	run := sha256.Sum256([]byte("machine-id " + b.req.Run))
	return []File{
		file("/etc/passwd", sprintf("root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n%s:x:%d:%d:Agent:%s:%s\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
			id.User, id.UID, id.GID, b.plan.Identity.Home, b.shell()), "only the agent"),
		file("/etc/group", sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", id.User, id.GID), "only the agent"),
		file("/etc/hosts", "127.0.0.1 localhost agentos\n::1 localhost\n", "loopback is the only network"),
		file("/etc/hostname", "agentos\n", "the sandbox's name"),
		file("/etc/resolv.conf", "", "there is no name server"),
		file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nprotocols: files\nservices: files\n", "no service to ask"),
		file("/etc/machine-id", hex.EncodeToString(run[:16])+"\n", "another one for each run"),
		file("/etc/shells", "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n", "the usual ones"),
		// A login shell (codex starts one for each command) keeps the PATH.
		file("/etc/profile", "# made by agentos: the environment is the plan's\n", "the host's would reset PATH"),
		file("/etc/bash.bashrc", "[ -z \"$PS1\" ] || PS1='agentos:\\w\\$ '\n", "a prompt that says where one is"),
		file("/etc/gitconfig", sprintf("[user]\n\tname = \"%s\"\n\temail = \"%s\"\n", name, mail), "so that commits have an author"),
	}
}

func file(p, data, why string) File { return File{Path: p, Data: data, Why: why} }

// plainText: nothing that would end a quoted value of git-config(1).
func plainText(s string) bool {
	return len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '"' || r == '\\' })
}

func (b *builder) filePaths() []string {
	if b.landlock() {
		return nil
	}
	var out []string
	for _, f := range b.synthetic() {
		out = append(out, f.Path)
	}
	return out
}

func (b *builder) files() error {
	if !b.landlock() {
		b.plan.Files = b.synthetic()
	}
	return nil
}
