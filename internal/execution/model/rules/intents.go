package rules

import (
	"encoding/json"
	"slices"
)

// Intent documents one thing that the rules understand.
type Intent struct {
	Name     string   // one word
	Summary  string   // what the answer says
	Examples []string // goals that mean it
	Tools    []string // what it calls
}

// Intents lists what is understood, in a fixed order. The caller owns the result.
func Intents() []Intent {
	var list []Intent
	for _, t := range table() {
		i := Intent{Name: t.name, Summary: t.summary, Examples: slices.Clone(t.examples)}
		for _, s := range t.plan(slots{unit: "x.service", pkg: "x"}) {
			i.Tools = append(i.Tools, s.tool)
		}
		list = append(list, i)
	}
	return list
}

func examples() []string {
	var list []string
	for _, t := range table() {
		list = append(list, t.examples[0])
	}
	return list
}

type step struct{ tool, arguments string }

type intent struct {
	name, summary string
	examples      []string
	patterns      []pattern
	matchers      []matcher // compiled by New
	plan          func(slots) []step
	report        func(*report, slots)
}

// The tools' names, as execution/tool/catalog has them.
const (
	systemInspect  = "system_inspect"
	npuInspect     = "npu_inspect"
	packageQuery   = "package_query"
	serviceInspect = "service_inspect"
	journalRead    = "journal_read"
)

// table is the table of intents.
func table() []intent {
	return []intent{
		{
			name: "inspect", summary: "what this machine is and how it does: system, load, pressure, memory, filesystems, hottest processes",
			examples: []string{"inspect this Linux system", "what is this machine", "summarize the system state", "is this machine healthy"},
			patterns: phrases("",
				"(inspect|check|examine|describe|summarize|summarise|analyze|analyse|diagnose|look at|report on) $machine",
				"(inspect|check|describe|summarize|summarise|report|show|report on) (the|its) [current] [system|machine] (state|status|health|condition)",
				"(inspect|check|describe|summarize|summarise|report|show|report on) the [current] (state|status|health|condition) of $machine",
				"(what|what kind of machine|what sort of machine) is $machine",
				"what [kind of|sort of] (machine|system|computer|os|linux|distribution|distro|kernel|operating system) is (this|it|running [here])",
				"which (os|linux|distribution|distro|kernel|operating system) (is this|is running|does $machine run)",
				"(system|machine|host|server) (status|state|summary|report|overview|health|information|info)",
				"[give me|write] (a|an) [short|brief] (summary|overview|report|description) of $machine",
				"what is the [current] (state|status|health|condition) of $machine", "[what is there to say|something] about $machine", "what is wrong with $machine",
				"how is $machine [doing]", "how does $machine do", "is $machine (healthy|ok|okay|fine|alright)",
				"is everything (ok|okay|fine|healthy) $here", "how long has $machine been (up|running)", "uptime",
				"health check", "(run|do|make) a health check [of $machine]"),
			plan:   fixed(step{systemInspect, `{}`}),
			report: reportInspect,
		},
		{
			name: "slow", summary: "likely causes of slowness, ranked: pressure, load, memory, swap, full filesystems, hot processes",
			examples: []string{"why is this machine slow", "why is the load so high", "what is using the memory", "memory is full"},
			patterns: phrases("",
				"why is $machine [so|that|very|this] (slow|sluggish|laggy|busy|unresponsive|hanging|overloaded)",
				"(why is|is) (it|everything) [so|very] (slow|sluggish|laggy) $here",
				"(what|what is|what is it that is) (slows|slowing|making) $machine [down|slow]", "what makes $machine [so] slow",
				"is $machine [so] (slow|busy|overloaded|sluggish)", "$machine is [so|very|too] (slow|sluggish|laggy|busy|unresponsive|overloaded)",
				"why is the [cpu|system] (load|usage) [so|that|very] high $here", "[the] [cpu|system] load is [so|very|too] high $here", "high [cpu] load [$here]", "load is high",
				"(what|which process|which processes|which program|who) (is|are) (using|eating|hogging|taking) [up] [all|all of|so much|most of|most] [the|my] (cpu|memory|ram|swap) $here",
				"(what|which process|which processes|which program|who) (uses|use|eats|takes) [up] [all|all of|so much|most of|most] [the|my] (cpu|memory|ram|swap) $here",
				"why is [the|my] (memory|ram|swap) [so] full $here", "[the|my] (memory|ram|swap) is full $here", "is [the|my] (memory|ram|swap) full $here",
				"(out of|low on|running out of) (memory|ram)", "$machine is (out of|low on|running out of) (memory|ram)", "memory full",
				"how much (memory|ram) is (used|free|left|available|in use) $here", "how much [free] (memory|ram) does $machine have", "(check|inspect) [the] (memory|ram|load|cpu|memory usage|cpu usage) $here"),
			plan:   fixed(step{systemInspect, `{"sections":["load","pressure","memory","filesystems","processes","uptime"],"processes":10}`}),
			report: reportSlow,
		},
		{
			name: "disk", summary: "how full each local filesystem is, by bytes and by inodes",
			examples: []string{"is the disk full", "how much disk space is left", "which filesystems are full", "no space left on device"},
			patterns: phrases("",
				"(is|why is) (the|my|a|any) (disk|drive|storage|filesystem|root filesystem) [so|nearly|almost] full $here", "(is|are) any (filesystem|filesystems|disk|disks) full $here",
				"(the|my) (disk|drive|storage|filesystem) is [nearly|almost] full", "disk [is] full", "no space left on device", "(out of|low on) disk space",
				"how much [free] [disk|storage] space (is|do i have|is there|does $machine have) [left|free|available|used] $here", "how full (is|are) (the|my) (disk|disks|drive|drives|storage|filesystem|filesystems) $here",
				"(which|what) (filesystem|filesystems|disk|disks|drives) (is|are) [nearly|almost] full $here", "[free|left] disk space [left]", "disk usage [$here]",
				"(check|show|inspect|report|list) [the] [free] (disk|disk space|disk usage|free space|storage|filesystems|disks) [usage] $here"),
			plan:   fixed(step{systemInspect, `{"sections":["filesystems"]}`}),
			report: reportDisk,
		},
		{
			name: "service", summary: "whether a service is healthy, and its recent warnings",
			examples: []string{"is the service ssh healthy", "is nginx running", "status of cron.service", "why did postgresql fail"},
			patterns: phrases("",
				"is $unit [still|up and] (healthy|running|up|ok|okay|active|alive|working|fine|down|dead|failed|failing|broken|started|stopped|enabled) $here",
				"[what is] [the] (status|state|health) of $unit $here", "$unit (status|state|health)",
				"(check|inspect|examine|look at|describe) ([the] (service|unit|daemon) {unit}|[the] {unit} (service|unit|daemon)) $here", "(check|inspect) {unit}",
				"(check|show|report) [the] (status|state|health) of $unit $here", "(check|see) (if|whether) $unit is (healthy|running|up|ok|okay|active|working) $here",
				"how is $unit [doing]", "why (did|has) $unit (fail|failed|crash|crashed|stop|stopped|die|died)",
				"why is $unit (down|dead|failed|failing|broken|not running|not working|stopped|restarting|inactive)", "what is wrong with $unit"),
			plan: func(s slots) []step {
				return []step{{serviceInspect, args("unit", s.unit)}, {journalRead, args("unit", s.unit, "priority", "warning", "lines", 20)}}
			},
			report: reportService,
		},
		{
			name: "package", summary: "whether a package is installed, its version, and what it is",
			examples: []string{"is curl installed", "what is package bash", "which version of openssl is installed"},
			patterns: phrases("",
				"what is ([the] package {pkg}|[the] {pkg} package)", "what is {pkg}", "what package is {pkg}", "is $pkg installed $here", "(check|see) (if|whether) $pkg is installed $here",
				"(do|have) (i|we) (have|got) $pkg [installed] $here", "(which|what) version of $pkg [is installed|is this|is it|do i have|do we have|is there] $here",
				"(what is|which is) the [installed] version of $pkg $here", "[the] [installed] version of $pkg", "(which|what) {pkg} version (is installed|do i have|is this|do we have) $here",
				"(query|inspect|check|describe|look up|show|examine|find) ([the] package {pkg}|[the] {pkg} package) $here", "(check|inspect) {pkg}", "package {pkg}"),
			plan:   func(s slots) []step { return []step{{packageQuery, args("name", s.pkg)}} },
			report: reportPackage,
		},
		{
			name: "journal", summary: "what a service wrote to the journal lately, or only its errors or warnings",
			examples: []string{"what changed in the journal of ssh", "errors in the log of nginx", "warnings in the journal of cron in the last 2 hours"},
			patterns: slices.Concat(
				phrases("",
					"what [has] (changed|happened|is new|is happening) in $log (of|for|from) $unit $since", "what is new in $log (of|for|from) $unit $since",
					"what is in $log (of|for|from) $unit $since", "(read|show|print|inspect|check|summarize|summarise|look at) [the] [last|latest|recent|newest] $log [entries|lines|messages] (of|for|from) $unit $since",
					"$log (of|for|from) $unit $since", "(read|show|check|inspect) [the] {unit} (log|logs|journal) $since", "[the] {unit} (log|logs|journal) $since",
					"what did $unit (log|write) $since", "what [has] happened (to|in|with) ([the] (service|unit|daemon) {unit}|[the] {unit} (service|unit|daemon)) $since"),
				phrases("err",
					"[(show|find|list|are there|were there|what are)] [the|any|all] [recent|latest|last|new] (errors|error|failures|problems) (in|from) $log (of|for|from) $unit $since",
					"[(show|find|list|are there|were there|what are)] [the|any|all] [recent|latest|last|new] (errors|failures|problems) (of|from|in|with) $unit $since", "[the] {unit} (errors|failures) $since",
					"what [are|were] [the] errors (of|from|in) $unit $since"),
				phrases("warning",
					"[(show|find|list|are there|were there|what are)] [the|any|all] [recent|latest|last|new] (warnings|warnings and errors|errors and warnings) (in|from) $log (of|for|from) $unit $since",
					"[(show|find|list|are there|were there|what are)] [the|any|all] [recent|latest|last|new] (warnings|warnings and errors|errors and warnings) (of|from|in) $unit $since")),
			plan: func(s slots) []step {
				list := []any{"unit", s.unit, "lines", 50}
				if s.minutes > 0 {
					list = append(list, "since_minutes", s.minutes)
				}
				if s.priority != "" {
					list = append(list, "priority", s.priority)
				}
				return []step{{journalRead, args(list...)}}
			},
			report: reportJournal,
		},
		{
			name: "accelerators", summary: "which accelerators (NPU, GPU) this machine has, with drivers and vendor libraries",
			examples: []string{"which accelerators are there", "does this machine have an NPU", "is there a GPU"},
			patterns: phrases("",
				"(which|what) $accel (are there|is there|do i have|do we have|does $machine have|are available|is available|are installed|is installed|is in $machine|are in $machine|exist) $here",
				"(is|are) there (a|an|any) $accel [available|in $machine] $here", "does $machine have (a|an|any) $accel", "(do|have) (i|we) (have|got) (a|an|any) $accel $here",
				"(list|show|find|inspect|check|detect|discover|describe) [the|all|any] [available] $accel $here", "has $machine (a|an|any) $accel"),
			plan:   fixed(step{npuInspect, `{}`}),
			report: reportAccelerators,
		},
	}
}

func fixed(s ...step) func(slots) []step { return func(slots) []step { return s } }

// args encodes names and values as a JSON object with sorted names.
func args(list ...any) string {
	m := map[string]any{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i].(string)] = list[i+1]
	}
	b, err := json.Marshal(m)
	if err != nil { // strings and integers always encode
		return "{}"
	}
	return string(b)
}
