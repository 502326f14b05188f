package rules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// pattern is one phrase. It matches a whole part of a goal, in any case.
type pattern struct {
	text     string
	priority string // preset of the journal intents
}

// matcher is a compiled phrase; slots names its groups in order.
type matcher struct {
	re       *regexp.Regexp
	slots    []string
	priority string
}

// The phrase language, as docs/spec/rules.md explains it: words; (a|b)
// alternatives; [x] optional; {slot} one word; and these abbreviations.
var abbreviationList = []string{
	"$machine", "([this|the|my|our] [local] [linux] (machine|system|computer|host|server|box|pc|laptop)|this [linux])",
	"$here", "[here|on (this|the|my) [linux] (machine|system|computer|host|server|box)]",
	"$unit", "([the] (service|unit|daemon) {unit}|[the] {unit} (service|unit|daemon)|[the] {unit})",
	"$pkg", "([the] package {pkg}|[the] {pkg} package|{pkg})",
	"$accel", "(accelerator|accelerators|npu|npus|gpu|gpus|[ai] (accelerator|accelerators) hardware)",
	"$log", "[the] (log|logs|journal|journal log)",
	"$since", "[(in|for|over|during|from) the (last|past) ({minutes} (minutes|minute|min)|{hours} (hours|hour|h)|{days} (days|day)|{minute} minute|{hour} hour|{day} day)]",
}

var abbreviations = strings.NewReplacer(abbreviationList...)

func phrases(priority string, texts ...string) []pattern {
	var ps []pattern
	for _, t := range texts {
		ps = append(ps, pattern{t, priority})
	}
	return ps
}

var lexer = regexp.MustCompile(`[()\[\]|]|\{[a-z]+\}|[^\s()\[\]|{}]+`)

// compile turns a phrase into an expression, anchored at both ends, over text
// that ends in a space. A phrase that doesn't compile is a bug that the tests
// find; it then matches nothing.
func (p pattern) compile() (matcher, error) {
	m := matcher{priority: p.priority}
	var b strings.Builder
	b.WriteString(`^(?i:`)
	for _, tok := range lexer.FindAllString(abbreviations.Replace(p.text), -1) {
		switch {
		case tok == "(" || tok == "[":
			b.WriteString("(?:")
		case tok == "]":
			b.WriteString(")?")
		case tok == ")" || tok == "|":
			b.WriteString(tok)
		case tok[0] == '{':
			name := tok[1 : len(tok)-1]
			m.slots = append(m.slots, name)
			if constants[name] > 0 {
				b.WriteString("()")
			} else {
				b.WriteString(`(\S+) `)
			}
		default:
			b.WriteString(regexp.QuoteMeta(tok) + " ")
		}
	}
	b.WriteString(`)$`)
	var err error
	if m.re, err = regexp.Compile(b.String()); err != nil {
		return m, fmt.Errorf("compile phrase %q: %w", p.text, err)
	}
	return m, nil
}

// constants are slots that hold no word but a number of minutes.
var constants = map[string]int{"minute": 1, "hour": 60, "day": 24 * 60}

// match reports the slots when g is this phrase and its arguments are valid.
func (m matcher) match(g string) (slots, bool) {
	found := m.re.FindStringSubmatchIndex(g + " ")
	if found == nil {
		return slots{}, false
	}
	s := slots{priority: m.priority}
	for i, name := range m.slots {
		from, to := found[2*i+2], found[2*i+3]
		if from < 0 {
			continue
		}
		if !s.set(name, g[min(from, len(g)):min(to, len(g))]) {
			return slots{}, false
		}
	}
	return s, true
}

func (s *slots) set(name, value string) (ok bool) {
	switch name {
	case "unit":
		s.unit, ok = unitName(value)
	case "pkg":
		s.pkg, ok = value, packageRE.MatchString(value) && !stopWords[strings.ToLower(value)]
	case "minutes":
		ok = s.since(value, 1)
	case "hours":
		ok = s.since(value, 60)
	case "days":
		ok = s.since(value, 24*60)
	default:
		s.minutes = constants[name]
		ok = s.minutes > 0
	}
	return ok
}

func (s *slots) since(n string, unit int) bool {
	v, err := strconv.Atoi(n)
	s.minutes = v * unit
	return err == nil && v >= 1 && v <= 365 && s.minutes <= maxMinutes
}

const maxMinutes = 525600 // journal_read's own limit

// The same shapes as the tools' input schemas; the gate checks them again.
var (
	packageRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._-]{0,127}$`)
	unitRE    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9:_.\\@-]*\.(service|socket|timer|target|mount|path|slice|scope|swap|automount|device)$`)
)

// unitName adds .service to a bare name.
func unitName(s string) (string, bool) {
	if stopWords[strings.ToLower(s)] {
		return "", false
	}
	if !unitRE.MatchString(s) {
		s += ".service"
	}
	return s, len(s) <= 255 && unitRE.MatchString(s)
}

// stopWords are never the name of a service or a package: a phrase that would
// take one for a name has been misread.
var stopWords = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq("a all an and any anything are at be by do does everything for from has have here i in is it its me my no not " +
		"of on or our package packages service services unit units daemon daemons so some something that the their there these this those to up us we " +
		"what which who why with you your machine system computer host server box pc laptop linux kernel os disk disks drive filesystem filesystems " +
		"memory ram swap cpu load space storage journal log logs error errors status state health accelerator accelerators npu npus gpu gpus hardware") {
		m[w] = true
	}
	return m
}()
