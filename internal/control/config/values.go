package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"agentos/internal/lib/fault"
)

// usage is a refusal of a value, with what to write instead.
func usage(next, format string, args ...any) error {
	return fault.New(fault.Usage, next, format, args...)
}

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func nameTo(put func(*Config, string)) func(*Config, raw) error {
	return func(c *Config, r raw) error {
		if !nameRE.MatchString(r.text) {
			return usage("use 1 to 64 of a-z 0-9 . _ - and start with a letter or digit", "name %q is not allowed", clip(r.text))
		}
		put(c, r.text)
		return nil
	}
}

func setModelName(c *Config, r raw) error {
	ok := r.text != "" && len(r.text) <= 256 && !strings.ContainsFunc(r.text, func(x rune) bool { return !unicode.IsPrint(x) })
	if !ok {
		return usage("use the name that the server lists, up to 256 printable characters", "model name %q is not allowed", clip(r.text))
	}
	c.Model.Name = r.text
	return nil
}

// pathTo takes absolute paths: nobody can tell from where a configuration file
// will be read. Relative ones of flags and environment were completed before.
func pathTo(put func(*Config, string)) func(*Config, raw) error {
	return func(c *Config, r raw) error {
		p := r.text
		switch {
		case strings.ContainsRune(p, 0) || !utf8.ValidString(p) || len(p) > 4096:
			return usage("use a plain path of at most 4096 bytes", "path %q is not allowed", clip(p))
		case !filepath.IsAbs(p):
			return usage("write the whole path, from /", "path %q is relative", clip(p))
		}
		put(c, filepath.Clean(p))
		return nil
	}
}

func boolTo(put func(*Config, bool)) func(*Config, raw) error {
	return func(c *Config, r raw) error {
		switch r.text {
		case "true", "1":
			put(c, true)
		case "false", "0":
			put(c, false)
		default:
			return usage("write true or false", "%q is not true or false", clip(r.text))
		}
		return nil
	}
}

func number(text string, lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strings.HasPrefix(text, "+") {
		return 0, usage("write digits only", "%q is not a whole number", clip(text))
	}
	if n < lo || n > hi {
		return 0, usage("write a number from "+strconv.FormatInt(lo, 10)+" to "+strconv.FormatInt(hi, 10), "%d is out of range", n)
	}
	return n, nil
}

func countTo(lo, hi int64, put func(*Config, int64)) func(*Config, raw) error {
	return func(c *Config, r raw) error {
		n, err := number(r.text, lo, hi)
		if err == nil {
			put(c, n)
		}
		return err
	}
}

func span(text string, lo, hi time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if n, nerr := strconv.ParseInt(text, 10, 32); nerr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil {
		return 0, usage("write seconds, or a time such as 90s or 2m", "%q is not a time", clip(text))
	}
	if d < lo || d > hi {
		return 0, usage("write a time from "+lo.String()+" to "+hi.String(), "%s is out of range", d)
	}
	return d, nil
}

func setTimeout(c *Config, r raw) (err error) {
	c.Model.Timeout, err = span(r.text, time.Second, time.Hour)
	return err
}

func setElapsed(c *Config, r raw) (err error) {
	c.Agent.Limits.Elapsed, err = span(r.text, time.Second, 24*time.Hour)
	return err
}

// Linux: 2^32-1 and 2^16-1 mean "no user" in some interfaces.
const maxUID = 1<<32 - 2

func setOwner(c *Config, r raw) error {
	n, err := number(r.text, 0, maxUID)
	v := uint32(n)
	c.Agent.OwnerUID = &v
	return err
}

// setUID and setGID refuse 0: an agent is never root. Spec: OSA-02.
func setUID(c *Config, r raw) (err error) {
	c.Agent.UID, err = agentID(r.text, "UID")
	return err
}

func setGID(c *Config, r raw) (err error) {
	c.Agent.GID, err = agentID(r.text, "GID")
	return err
}

func agentID(text, what string) (*uint32, error) {
	n, err := number(text, 0, maxUID)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fault.New(fault.Denied, "leave it unset, or give the "+what+" of an unprivileged account", "agent %s 0 is refused: an agent is never root", what)
	}
	v := uint32(n)
	return &v, nil
}

// planned are names of the source document that this version has no backend for.
var planned = []string{"openai_compatible", "subprocess", "npu_candle"}

func setBackend(c *Config, r raw) error {
	switch r.text {
	case "auto", "socket", "replay", "rules":
		c.Model.Backend = Backend(r.text)
	case "fake":
		c.Model.Backend = BackendReplay
	case "npu":
		c.Model.Backend = BackendSocket
	default:
		if slices.Contains(planned, r.text) {
			return fault.New(fault.Unavailable, "use socket with a local model server, or rules, which needs no model",
				"backend %q is not in this version: planned", r.text)
		}
		return usage("write auto, socket, replay or rules (fake means replay, npu means socket)", "backend %q does not exist", clip(r.text))
	}
	return nil
}

var unitRE = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,240}\.(service|socket|timer|mount|target|path|slice|scope)$`)

// setServices takes exact unit names only: a pattern would allow what nobody
// looked at. Spec: C-10.
func setServices(c *Config, r raw) error {
	c.Tools.ServiceAllowlist = nil
	if len(r.list) > 256 {
		return usage("list at most 256 units", "list of %d units is too long", len(r.list))
	}
	for _, u := range r.list {
		if !unitRE.MatchString(u) {
			return usage("write exact unit names such as nginx.service, without patterns", "unit name %q is not allowed", clip(u))
		}
		if !slices.Contains(c.Tools.ServiceAllowlist, u) {
			c.Tools.ServiceAllowlist = append(c.Tools.ServiceAllowlist, u)
		}
	}
	return nil
}

func setAnchors(c *Config, r raw) error {
	c.Audit.Anchors = nil
	for _, s := range r.list {
		a := Anchor{Kind: s}
		if p, ok := strings.CutPrefix(s, "file:"); ok {
			a = Anchor{Kind: "file", Path: filepath.Clean(p)}
			if !filepath.IsAbs(p) || strings.ContainsRune(p, 0) {
				return usage("write file:/path with the whole path", "anchor %q has no absolute path", clip(s))
			}
		} else if s != "journald" {
			return usage("write journald or file:/path", "anchor %q does not exist", clip(s))
		}
		if !slices.Contains(c.Audit.Anchors, a) {
			c.Audit.Anchors = append(c.Audit.Anchors, a)
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
