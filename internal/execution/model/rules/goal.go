package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
)

const maxGoal = 512 // bytes

// match is an intent with the arguments that a goal gave it.
type match struct {
	intent *intent
	slots  slots
}

// slots are the validated arguments of a goal.
type slots struct {
	unit, pkg, priority string
	minutes             int // 0: no limit
}

func (m match) steps() []step { return m.intent.plan(m.slots) }

// understand finds the one intent that the whole goal means. A goal of several
// sentences or parts must mean the same in each of them.
func (b *Backend) understand(goal string) (match, error) {
	g := normalise(goal)
	if g == "" || len(goal) > maxGoal {
		return match{}, notUnderstood(goal)
	}
	if found := b.find(g); len(found) > 0 {
		return one(goal, found)
	}
	parts := splitter.Split(g, -1)
	var all []match
	for _, p := range parts {
		found := b.find(normalise(p))
		if len(parts) < 2 || len(found) == 0 {
			return match{}, notUnderstood(goal)
		}
		all = append(all, found...)
	}
	return one(goal, all)
}

func one(goal string, found []match) (match, error) {
	for _, f := range found[1:] {
		if f != found[0] {
			return match{}, ambiguous(goal, found)
		}
	}
	return found[0], nil
}

// find returns the distinct matches of one part of a goal.
func (b *Backend) find(g string) []match {
	var found []match
	for i := range b.intents {
		for _, p := range b.intents[i].matchers {
			if s, ok := p.match(g); ok {
				if m := (match{&b.intents[i], s}); !slices.Contains(found, m) {
					found = append(found, m)
				}
			}
		}
	}
	return found
}

var (
	splitter = regexp.MustCompile(` (?:and|then|and then|also) | ?[.;!?] | ?, `)
	// polite words at either end say nothing about the goal.
	polite = regexp.MustCompile(`^(?i:please |hi |hello |hey |can you |could you |would you |will you |tell me |show me |i want to know |i would like to know |let me know |find out |just |now |also )+|(?i: please| now| right now| for me| thanks| thank you| and (?:report|summarize|summarise|describe|explain|tell me|say|show me) what you (?:find|found|see)(?: out)?)+$`)
	apos   = strings.NewReplacer("what's ", "what is ", "What's ", "what is ", "how's ", "how is ", "How's ", "how is ",
		"’", "'", "isn't ", "is not ")
)

// normalise makes one line of single-spaced words without quotes, closing
// punctuation and politeness. Case stays, for names are case-sensitive.
func normalise(s string) string {
	s = apos.Replace(strings.ReplaceAll(chat.Clean(s, maxGoal), "’", "'"))
	s = strings.Map(func(r rune) rune {
		switch r {
		case '"', '`', '“', '”', '\'', '‘':
			return -1
		}
		return r
	}, s)
	s = strings.TrimRight(strings.Join(strings.Fields(s), " "), " .?!,;:")
	for {
		t := strings.TrimSpace(polite.ReplaceAllString(s, ""))
		if t == s {
			return s
		}
		s = t
	}
}

func notUnderstood(goal string) error {
	return &model.Error{
		Reason: model.ReasonNotUnderstood,
		Msg: fmt.Sprintf("no rule understands the goal %q; understood are: %s",
			chat.Clean(goal, 120), strings.Join(examples(), "; ")),
		Next: "say one of these, or configure a model (AGENTOS_MODEL_SOCKET)",
	}
}

func ambiguous(goal string, found []match) error {
	var means []string
	for _, f := range found {
		if s := f.describe(); !slices.Contains(means, s) {
			means = append(means, s)
		}
	}
	return &model.Error{
		Reason: model.ReasonNotUnderstood,
		Msg:    fmt.Sprintf("the goal %q may mean: %s", chat.Clean(goal, 120), strings.Join(means, "; or ")),
		Next:   "ask for one of them at a time",
	}
}

func (m match) describe() string {
	s := m.intent.name
	for _, a := range []string{m.slots.unit, m.slots.pkg} {
		if a != "" {
			s += " " + a
		}
	}
	return fmt.Sprintf("%s (%s)", s, m.intent.examples[0])
}
