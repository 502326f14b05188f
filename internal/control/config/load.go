package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
)

// EnvConfig names the configuration file, like --config.
const EnvConfig = "AGENTOS_CONFIG"

// SystemFile is read first, before the user's own.
const SystemFile = "/etc/agentos/config.yaml"

// npuSocket is where the source document's NPU server listens by default.
const npuSocket = "/run/agentos/npu.sock"

// Sources is everything that Load looks at besides files. Home and Dir may be
// empty.
type Sources struct {
	Sets   []setting.Set // command line, later ones win
	Env    []string      // NAME=value
	System string        // normally SystemFile
	Home   string        // home directory
	Dir    string        // working directory, for relative paths of flags and environment
}

// Result is a valid configuration with its history.
type Result struct {
	Config  Config
	Values  []Value  // every key, in table order
	Files   []string // read, in order
	Notices []string // worth telling a person, never an error
}

// FromProcess fills Sources from this process.
func FromProcess(sets []setting.Set) Sources {
	home, _ := os.UserHomeDir()
	dir, _ := os.Getwd()
	return Sources{Sets: sets, Env: os.Environ(), System: SystemFile, Home: home, Dir: dir}
}

// Load reads, merges and checks all layers. Errors are faults; when there are
// several problems the error lists all of them, one a line.
func Load(src Sources) (*Result, error) {
	l := loader{src: src, keys: map[string]key{}, env: map[string]string{}, chosen: map[string]raw{}}
	for _, k := range table() {
		l.keys[k.name] = k
	}
	for _, kv := range src.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			l.env[name] = value
		}
	}
	l.files()
	l.environment()
	l.flags()
	l.defaults()
	cfg := l.build()
	if len(l.probs) > 0 {
		return nil, join(l.probs)
	}
	return &Result{Config: cfg, Values: l.values(), Files: l.read, Notices: l.notices}, nil
}

type loader struct {
	src     Sources
	keys    map[string]key
	env     map[string]string
	chosen  map[string]raw // strongest so far
	read    []string
	notices []string
	probs   []error
}

func (l *loader) files() {
	paths, must := []string{l.src.System}, false
	if x := l.env["XDG_CONFIG_HOME"]; filepath.IsAbs(x) {
		paths = append(paths, filepath.Join(x, "agentos", "config.yaml"))
	} else if l.src.Home != "" {
		paths = append(paths, filepath.Join(l.src.Home, ".config", "agentos", "config.yaml"))
	}
	only := l.env[EnvConfig]
	for _, s := range l.src.Sets {
		if s.Key == setting.ConfigKey {
			only = s.Value
			if only == "" {
				l.probs = append(l.probs, usage("name a file", "%s is empty", s.Flag))
				return
			}
		}
	}
	if only != "" {
		if !filepath.IsAbs(only) {
			only = filepath.Join(l.src.Dir, only)
		}
		paths, must = []string{only}, true
	}
	for _, p := range paths {
		if p == "" {
			continue
		}
		data, err := readFile(p)
		if fault.KindOf(err) == fault.NotFound && !must {
			continue
		}
		if err != nil {
			l.probs = append(l.probs, err)
			continue
		}
		vals, probs := parseFile(p, data, l.keys)
		l.probs = append(l.probs, probs...)
		l.read = append(l.read, p)
		for _, v := range vals {
			l.chosen[v.key] = v.raw
		}
	}
}

func (l *loader) environment() {
	for _, k := range table() {
		used := ""
		for _, name := range k.env {
			text, ok := l.env[name]
			// An empty variable is an unset one, except that an empty list is a list.
			if !ok || (text == "" && k.shape != shapeList) {
				continue
			}
			if used != "" {
				if text != l.env[used] {
					l.notices = append(l.notices, fmt.Sprintf("%s is not used: %s is set too", name, used))
				}
				continue
			}
			used = name
			l.chosen[k.name] = l.flat(k, text, FromEnv, name)
		}
	}
	if unknown := l.unknownEnv(); len(unknown) > 0 {
		l.notices = append(l.notices, "no effect in this version: "+strings.Join(unknown, ", "))
	}
}

func (l *loader) unknownEnv() (out []string) {
	known := EnvNames()
	for name := range l.env {
		if strings.HasPrefix(name, "AGENTOS_") && !slices.Contains(known, name) {
			out = append(out, clip(name))
		}
	}
	sort.Strings(out)
	if len(out) > 20 {
		out = append(out[:20], fmt.Sprintf("and %d more", len(out)-20))
	}
	return out
}

// flat is a value that came as one string: lists are split at commas.
func (l *loader) flat(k key, text string, o Origin, source string) raw {
	r := raw{text: text, origin: o, source: source}
	if k.shape == shapePath && text != "" && !filepath.IsAbs(text) && l.src.Dir != "" {
		r.text = filepath.Join(l.src.Dir, text)
	}
	if k.shape == shapeList {
		for _, e := range strings.Split(text, ",") {
			if e = strings.TrimSpace(e); e != "" {
				r.list = append(r.list, e)
			}
		}
	}
	return r
}

func (l *loader) flags() {
	for _, s := range l.src.Sets {
		if s.Key == setting.ConfigKey {
			continue
		}
		k, ok := l.keys[s.Key]
		if !ok {
			l.probs = append(l.probs, usage(nearest(s.Key, l.keys), "%s: unknown key %q", s.Flag, clip(s.Key)))
			continue
		}
		l.chosen[k.name] = l.flat(k, s.Value, FromFlag, s.Flag)
	}
}

func (l *loader) defaults() {
	for name, k := range l.keys {
		if _, ok := l.chosen[name]; !ok && k.def != "" {
			l.chosen[name] = l.flat(k, k.def, FromDefault, "")
		}
	}
	if _, ok := l.chosen["state_dir"]; !ok {
		switch x := l.env["XDG_DATA_HOME"]; {
		case filepath.IsAbs(x):
			l.chosen["state_dir"] = raw{text: filepath.Join(x, "agentos"), origin: FromDefault, source: "XDG_DATA_HOME"}
		case l.src.Home != "":
			l.chosen["state_dir"] = raw{text: filepath.Join(l.src.Home, ".local", "share", "agentos"), origin: FromDefault}
		default:
			l.probs = append(l.probs, usage("set --state-dir or AGENTOS_STATE_DIR", "no state directory: there is no home directory"))
		}
	}
	if _, ok := l.chosen["model.socket"]; !ok && l.chosen["model.backend"].text == "npu" {
		l.chosen["model.socket"] = raw{text: npuSocket, origin: FromDefault, source: "backend npu"}
	}
}

// build converts each raw value once and checks what spans several keys.
func (l *loader) build() (c Config) {
	for _, k := range table() {
		r, ok := l.chosen[k.name]
		if !ok || (r.text == "" && k.shape != shapeList && k.def == "" && k.name != "state_dir") {
			continue // not given, or given as empty to undo a weaker layer
		}
		if err := k.set(&c, r); err != nil {
			l.probs = append(l.probs, located(err, k.name, r))
		}
	}
	need := func(b Backend, have, key, flag string) {
		if l.chosen[key].text == "" && c.Model.Backend == b && have == "" {
			l.probs = append(l.probs, usage("set "+key+", "+flag+", or choose another backend", "backend %q needs %s", string(b), key))
		}
	}
	if written := l.chosen["model.backend"].text; c.Model.Backend != "" && written != string(c.Model.Backend) {
		l.notices = append(l.notices, fmt.Sprintf("backend %s means %s", written, c.Model.Backend))
	}
	need(BackendSocket, c.Model.Socket, "model.socket", "--model-socket PATH")
	need(BackendReplay, c.Model.Replay, "model.replay", "--replay FILE")
	return c
}

// located says which key and which source a refused value has.
func located(err error, name string, r raw) error {
	where := name
	if r.source != "" {
		where = r.source + ": " + name
	}
	return fault.Wrap(err, fault.KindOf(err), fault.NextOf(err), "%s", where)
}

func (l *loader) values() []Value {
	out := make([]Value, 0, len(l.keys))
	for _, k := range table() {
		v := Value{Key: k.name, Origin: FromDefault, Help: k.help}
		if r, ok := l.chosen[k.name]; ok {
			v.Origin, v.Source = r.origin, r.source
			v.Value = r.text
			if k.shape == shapeList {
				v.Value = strings.Join(r.list, ",")
			}
		}
		out = append(out, v)
	}
	return out
}

// join keeps a single problem as it is and lists several under one fault.
func join(probs []error) error {
	if len(probs) == 1 {
		return fault.Wrap(probs[0], fault.KindOf(probs[0]), fault.NextOf(probs[0]), "read configuration")
	}
	var b strings.Builder
	for _, p := range probs {
		b.WriteString("\n  " + p.Error())
		if next := fault.NextOf(p); next != "" {
			b.WriteString("\n    next: " + next)
		}
	}
	return fault.New(fault.Usage, "fix these and run again", "read configuration: %d problems%s", len(probs), b.String())
}
