package profile

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

const secretNext = "remove it: secrets don't enter a sandbox; log in inside it, its home persists"

func nextOf(err error) string { return fault.NextOf(err) }

// The checks return what to do and what is wrong; wrong is empty for a good value.

func checkCommand(s string) (next, wrong string) {
	if s == "" || len(s) > 64 || s == "." || s == ".." || strings.ContainsAny(s, "/ ") {
		return "write the program's base name", fmt.Sprintf("%q is no program name", clip(s))
	}
	return "", ""
}

// checkPath takes /absolute, ~/below the owner's home and $WORKSPACE/below the
// workspace, clean, without patterns.
func checkPath(s string) (next, wrong string) {
	const forms = "write /absolute, ~/in the owner's home or $WORKSPACE/in the workspace"
	rest, root := s, ""
	for _, v := range []string{"$WORKSPACE", "~"} {
		if s == v || strings.HasPrefix(s, v+"/") {
			rest, root = "/"+strings.TrimPrefix(s[len(v):], "/"), v
		}
	}
	switch {
	case strings.HasPrefix(s, "$HOME") || strings.HasPrefix(s, "$XDG_"):
		return "remove it, or write ~/ for the owner's home", fmt.Sprintf("%q is in the sandbox's own home, which is writable anyway", clip(s))
	case !strings.HasPrefix(rest, "/"):
		return forms, fmt.Sprintf("%q is relative", clip(s))
	case path.Clean(rest) != rest:
		return "remove .., double and trailing slashes", fmt.Sprintf("%q is not clean", clip(s))
	case strings.ContainsAny(rest, "*?$"):
		return "name each path", fmt.Sprintf("%q holds a pattern or an unknown variable", clip(s))
	case s == "/" || s == "~":
		return "name the folders that are needed", fmt.Sprintf("%q is everything", s)
	case root == "$WORKSPACE" && rest == "/":
		return "write workspace: read or write", "the workspace has its own key"
	}
	return "", ""
}

// checkPass takes a variable's name, or a prefix with a final *. A prefix never
// lets a secret through: the builder looks at each name again.
func checkPass(s string) (next, wrong string) {
	name, prefix := strings.CutSuffix(s, "*")
	switch {
	case !sandboxplan.IsEnvName(name):
		return "write a name such as TERM, or a prefix such as LC_*", fmt.Sprintf("%q names no variable", clip(s))
	case prefix && len(name) < 3:
		return "write a longer prefix", fmt.Sprintf("%q passes nearly everything", s)
	case sandboxplan.SecretName(name):
		return secretNext, fmt.Sprintf("%q is named like a secret", s)
	case reserved(name):
		return "remove it; the sandbox sets it", fmt.Sprintf("%q is not the caller's to give", s)
	}
	return "", ""
}

// checkHost takes NAME:PORT, where NAME may begin with "*.".
func checkHost(s string) (next, wrong string) {
	host, port, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	host = strings.TrimPrefix(host, "*.")
	if !ok || err != nil || n == 0 || host == "" || len(host) > 253 ||
		strings.ContainsFunc(host, func(c rune) bool {
			return c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z')
		}) {
		return "write name:port, for example api.example.com:443", fmt.Sprintf("%q is no such address", clip(s))
	}
	return "", ""
}
