// Package setting is how configuration values travel on a command line: the
// flags that agentos and agentosd both take. agentos parses nothing but this;
// what a key means and whether a value is right is control/config's.
//
// State owned: none. Imports: lib/fault. Imported by: cli, client,
// control/config, cmd/agentosd. Invariants: Parse(Args(s)) == s.
// Tests: setting_test.go.
package setting

import (
	"strings"

	"agentos/internal/lib/fault"
)

// MaxValue bounds one key and value in bytes.
const MaxValue = 32 << 10

// ConfigKey is the pseudo key that carries the path of the config file. It
// replaces the two default files.
const ConfigKey = "config"

// Set is one value given on the command line.
type Set struct {
	Key   string // dotted: "model.backend"
	Value string
	Flag  string // the flag that the person typed: "--backend", or "--set"
}

// Flag is a short name for a key.
type Flag struct {
	Name string // with dashes
	Key  string
	Arg  string // placeholder in help texts
	Help string
}

// Flags returns the short names, in the order in which help lists them.
func Flags() []Flag {
	return []Flag{
		{"--config", ConfigKey, "FILE", "read only this configuration file"},
		{"--state-dir", "state_dir", "DIR", "where state and the audit log live"},
		{"--backend", "model.backend", "NAME", "model backend: auto, socket, replay, rules"},
		{"--model-socket", "model.socket", "PATH", "Unix socket of a local model server"},
		{"--replay", "model.replay", "FILE", "scripted model turns for the replay backend"},
		{"--agent", "agent.id", "ID", "which agent acts"},
	}
}

// ParseSet splits "key=value" as given to --set. Spaces around the key are not
// allowed; the value is taken as it is.
func ParseSet(s string) (Set, error) {
	const next = "write --set key=value, for example --set model.backend=rules; agentos config show lists the keys"
	key, value, ok := strings.Cut(s, "=")
	switch {
	case !ok || key == "":
		return Set{}, fault.New(fault.Usage, next, "read setting %q: not key=value", clip(s))
	case len(s) > MaxValue:
		return Set{}, fault.New(fault.Usage, next, "read setting %q: longer than %d bytes", clip(key), MaxValue)
	}
	return Set{Key: key, Value: value, Flag: "--set"}, nil
}

// Args renders sets as arguments for agentosd, in order.
func Args(sets []Set) []string {
	out := make([]string, 0, 2*len(sets))
	for _, s := range sets {
		if s.Flag == "--set" {
			out = append(out, "--set", s.Key+"="+s.Value)
			continue
		}
		out = append(out, s.Flag, s.Value)
	}
	return out
}

// Parse reads the flags of this package from argv and returns what is left, in
// order. "--flag value" and "--flag=value" are the same. It stops at "--".
func Parse(argv []string) (sets []Set, rest []string, err error) {
	keys := map[string]string{"--set": ""}
	for _, f := range Flags() {
		keys[f.Name] = f.Key
	}
	for i := 0; i < len(argv); i++ {
		if argv[i] == "--" {
			return sets, append(rest, argv[i:]...), nil
		}
		name, value, inline := strings.Cut(argv[i], "=")
		key, known := keys[name]
		if !known {
			rest = append(rest, argv[i])
			continue
		}
		if !inline {
			if i++; i == len(argv) {
				return nil, nil, fault.New(fault.Usage, "write "+name+" VALUE", "read flag %s: it needs a value", name)
			}
			value = argv[i]
		}
		s := Set{Key: key, Value: value, Flag: name}
		if name == "--set" {
			if s, err = ParseSet(value); err != nil {
				return nil, nil, err
			}
		}
		sets = append(sets, s)
	}
	return sets, rest, nil
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
