package policy

import (
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"
)

// Decide answers one request. It never fails: what goes wrong is listed in
// Decision.Errors and denies (INV-02). Safe for concurrent use.
func (s *Set) Decide(r Request) Decision {
	if s == nil {
		return Decision{Errors: []string{"no policy set is loaded"}}
	}
	w, err := newWorld(&r)
	if err != nil {
		return Decision{Revision: s.revision, Errors: []string{err.Error()}}
	}
	return s.decide(w)
}

// decide is the one place that decides; Explain calls it too.
func (s *Set) decide(w *world) Decision {
	rules := s.candidates(w)
	if err := w.withContext(rules.context()); err != nil {
		return Decision{Revision: s.revision, Errors: []string{err.Error()}}
	}
	effect, diag := cedar.Authorize(rules, w, w.request())
	d := Decision{Revision: s.revision, Errors: s.errorsOf(diag.Errors)}
	reasons := make([]int, len(diag.Reasons))
	for i, reason := range diag.Reasons {
		reasons[i] = s.byID[reason.PolicyID]
	}
	slices.Sort(reasons)
	d.Allow = effect == cedar.Allow && len(d.Errors) == 0
	if effect == cedar.Allow && !d.Allow {
		return d // an error denied; the permits decided nothing
	}
	if len(reasons) > 0 {
		d.Rules = make([]Rule, len(reasons))
	}
	for i, at := range reasons {
		r := &s.rules[at]
		d.Rules[i] = r.Rule
		if !d.Allow {
			continue
		}
		for k, v := range r.obligations {
			if d.Obligations == nil {
				d.Obligations = map[string]string{}
			}
			d.Obligations[k] = v
		}
	}
	return d
}

// errorsOf renders evaluation errors in file order.
func (s *Set) errorsOf(errs []cedar.DiagnosticError) []string {
	if len(errs) == 0 {
		return nil
	}
	slices.SortFunc(errs, func(a, b cedar.DiagnosticError) int { return s.byID[a.PolicyID] - s.byID[b.PolicyID] })
	out := make([]string, 0, len(errs))
	for _, e := range errs {
		r := &s.rules[s.byID[e.PolicyID]]
		out = append(out, fmt.Sprintf("%s:%d: policy %q: %s", r.File, r.Line, r.ID, e.Message))
	}
	return out
}
