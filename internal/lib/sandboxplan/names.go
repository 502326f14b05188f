package sandboxplan

import "strings"

// IsEnvName reports whether s can name a variable: letters, digits and _, not
// beginning with a digit, at most 128 bytes.
func IsEnvName(s string) bool {
	if s == "" || len(s) > 128 || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// SecretName reports whether a variable's name says that its value is a secret
// or leads to one: it ends in KEY, TOKEN, SECRET and the like, with or without a
// number, or is the address of a key agent. A name is all there is to go by, so
// this errs towards refusing.
func SecretName(name string) bool {
	n := strings.TrimRight(strings.ToUpper(name), "0123456789_")
	switch n {
	case "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "KUBECONFIG", "DOCKER_HOST", "NETRC":
		return true
	}
	for _, end := range []string{
		"KEY", "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD_HASH", "PAT",
		"CREDENTIAL", "CREDENTIALS", "CREDS", "COOKIE", "JWT", "AUTH",
	} {
		last, cut := strings.CutSuffix(n, end)
		if !cut {
			continue
		}
		// PATH does not end in PAT, but COMPAT does: short endings stand alone.
		if last == "" || strings.HasSuffix(last, "_") || len(end) > 4 || end == "KEY" {
			return true
		}
	}
	return false
}

// isName: an identifier that is safe in paths and on a terminal.
func isName(s string, limit int) bool {
	if s == "" || len(s) > limit || s[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// isHostname: one label of RFC 1123 §2.1.
func isHostname(s string) bool {
	return isName(s, 63) && !strings.Contains(s, "_") && !strings.HasSuffix(s, "-")
}

// isUser: a name that passwd(5) can hold.
func isUser(s string) bool {
	return isName(s, 32) && s != "root" && strings.ToLower(s) == s && (s[0] == '_' || s[0] >= 'a')
}
