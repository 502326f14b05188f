//go:build linux

package linux

import (
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/execution/tool/catalog"
	"agentos/internal/lib/fault"
)

// The arguments arrive validated by the gate against the input schema. They are
// checked here again, because this process trusts no caller with what it execs;
// args_test.go holds both checks to the same verdicts.

type systemArgs struct {
	Sections  []string `json:"sections"`
	Processes *int     `json:"processes"`
}

type npuArgs struct{}

type packageArgs struct {
	Name *string `json:"name"`
}

type serviceArgs struct {
	Unit *string `json:"unit"`
}

type journalArgs struct {
	Unit         *string `json:"unit"`
	Lines        *int    `json:"lines"`
	SinceMinutes *int    `json:"since_minutes"`
	Priority     *string `json:"priority"`
}

var (
	sections   = []string{"kernel", "uptime", "load", "pressure", "memory", "filesystems", "os", "processes"}
	priorities = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

	// Neither may start with a dash (an option), and a unit holds no glob
	// character, which journalctl would expand past the allow list.
	packageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._-]{0,127}$`)
	unitName    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9:_.\\@-]*\.` +
		`(service|socket|timer|target|mount|path|slice|scope|swap|automount|device)$`)
)

// decode turns raw into the typed arguments of the named tool.
func decode(name string, raw []byte, limit int) (any, error) {
	if len(raw) > limit {
		return nil, fault.New(fault.Limit, "send smaller arguments", "read arguments: larger than %d bytes", limit)
	}
	switch name {
	case catalog.SystemInspect:
		return check(raw, func(a systemArgs) string {
			switch {
			case a.Sections != nil && !subset(a.Sections, sections):
				return "sections"
			case !within(a.Processes, 1, 50):
				return "processes"
			}
			return ""
		})
	case catalog.NPUInspect:
		return check(raw, func(npuArgs) string { return "" })
	case catalog.PackageQuery:
		return check(raw, func(a packageArgs) string {
			if a.Name == nil || !packageName.MatchString(*a.Name) {
				return "name"
			}
			return ""
		})
	case catalog.ServiceInspect:
		return check(raw, func(a serviceArgs) string {
			if !unitOK(a.Unit) {
				return "unit"
			}
			return ""
		})
	case catalog.JournalRead:
		return check(raw, func(a journalArgs) string {
			switch {
			case !unitOK(a.Unit):
				return "unit"
			case !within(a.Lines, 1, 200):
				return "lines"
			case !within(a.SinceMinutes, 1, 525600):
				return "since_minutes"
			case a.Priority != nil && !subset([]string{*a.Priority}, priorities):
				return "priority"
			}
			return ""
		})
	}
	return nil, fault.New(fault.NotFound, "ask for one of the tools in the catalogue", "find tool %q", name)
}

const nextArgs = "send arguments that follow the tool's input schema"

// check decodes strictly (no unknown or duplicate member, no null) and asks bad
// for the first member whose value is out of range.
func check[T any](raw []byte, bad func(T) string) (any, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, fault.New(fault.Malformed, nextArgs, "read arguments: not a JSON object")
	}
	for name, v := range members {
		if v.Kind() == 'n' {
			return nil, fault.New(fault.Usage, nextArgs, "read arguments: null for %q", name)
		}
	}
	var a T
	if err := json.Unmarshal(raw, &a, json.RejectUnknownMembers(true)); err != nil {
		return nil, fault.New(fault.Usage, nextArgs, "read arguments: unknown member or wrong type")
	}
	if m := bad(a); m != "" {
		return nil, fault.New(fault.Usage, nextArgs, "read arguments: bad value for %q", m)
	}
	return a, nil
}

func within(v *int, lo, hi int) bool { return v == nil || *v >= lo && *v <= hi }

func unitOK(u *string) bool { return u != nil && len(*u) <= 255 && unitName.MatchString(*u) }

// subset reports whether list is a non-empty list of distinct members of all.
func subset(list, all []string) bool {
	seen := map[string]bool{}
	for _, s := range all {
		seen[s] = true
	}
	for _, s := range list {
		if !seen[s] {
			return false
		}
		seen[s] = false
	}
	return len(list) > 0
}
