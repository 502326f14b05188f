package policy

import (
	"iter"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// The index narrows a set to the policies whose scope can match a request. It
// is exact because a policy outside it has a false scope, which cedar-go would
// evaluate to "doesn't apply" without looking at conditions: such a policy can
// neither decide nor fail. A policy inside it is still evaluated, scope included,
// but for `action in […]`: cedar-go builds that set anew for each evaluation, and
// a policy is looked up by its actions, so there it is always true.
//
// Actions have no hierarchy: TestSchemaActionsAreFlat holds the schema to that.

// slot holds what is indexed by one of principal and resource.
type slot[T any] struct {
	any *T
	is  map[types.EntityType]*T
	eq  map[types.EntityUID]*T
	in  map[types.EntityUID]*T // also "is … in"
}

type leaf struct {
	rules   []int32 // ascending
	context bool    // one of them mentions `context`
}

type (
	byResource  = slot[leaf]
	byPrincipal = slot[byResource]
	index       map[types.EntityUID]*byPrincipal // by action
)

func newIndex(rules []rule) index {
	ix := index{}
	for _, a := range actions {
		ix[a.uid] = &byPrincipal{}
	}
	for i := range rules {
		p := (*ast.Policy)(rules[i].policy.AST())
		for _, uid := range scopeActions(p.Action) {
			if at := ix[uid]; at != nil {
				l := at.place(p.Principal).place(p.Resource)
				if n := len(l.rules); n == 0 || l.rules[n-1] != int32(i) {
					l.rules = append(l.rules, int32(i))
					l.context = l.context || mentionsContext(p)
				}
			}
		}
	}
	return ix
}

func mentionsContext(p *ast.Policy) bool {
	found := false
	visit(p, func(n ast.IsNode) { found = found || isVariable(n, "context") })
	return found
}

func scopeActions(s ast.IsActionScopeNode) []types.EntityUID {
	switch s := s.(type) {
	case ast.ScopeTypeEq:
		return []types.EntityUID{s.Entity}
	case ast.ScopeTypeIn:
		return []types.EntityUID{s.Entity}
	case ast.ScopeTypeInSet:
		return s.Entities
	}
	all := make([]types.EntityUID, 0, len(actions))
	for _, a := range actions {
		all = append(all, a.uid)
	}
	return all
}

// withoutActionSet is p without `action in […]`; p itself when it has none.
func withoutActionSet(p *cedar.Policy) *cedar.Policy {
	a := *p.AST()
	if _, ok := a.Action.(ast.ScopeTypeInSet); !ok {
		return p
	}
	a.Action = ast.ScopeTypeAll{}
	return cedar.NewPolicyFromAST(&a)
}

// place returns where policies with this scope are kept. A scope that it does
// not know goes with those that match anything, which is always exact.
func (s *slot[T]) place(scope ast.IsScopeNode) *T {
	switch c := scope.(type) {
	case ast.ScopeTypeEq:
		return at(&s.eq, c.Entity)
	case ast.ScopeTypeIn:
		return at(&s.in, c.Entity)
	case ast.ScopeTypeIsIn:
		return at(&s.in, c.Entity)
	case ast.ScopeTypeIs:
		return at(&s.is, c.Type)
	}
	if s.any == nil {
		s.any = new(T)
	}
	return s.any
}

func at[K comparable, T any](m *map[K]*T, k K) *T {
	if *m == nil {
		*m = map[K]*T{}
	}
	v := (*m)[k]
	if v == nil {
		v = new(T)
		(*m)[k] = v
	}
	return v
}

// maxMatches is how many places of one slot can match: any, is, eq, in the
// entity itself, in its parent (an agent's owner; nothing is nested deeper).
const maxMatches = 5

// match appends the places that can match uid with that parent.
func (s *slot[T]) match(uid, parent types.EntityUID, out *[maxMatches]*T) []*T {
	n := 0
	for _, v := range [maxMatches]*T{s.any, s.is[uid.Type], s.eq[uid], s.in[uid], s.in[parent]} {
		if v != nil {
			out[n] = v
			n++
		}
	}
	return out[:n]
}

// candidates are the rules that can apply to one request; a PolicyIterator.
type candidates struct {
	set    *Set
	leaves [maxMatches * maxMatches]*leaf
	n      int
}

func (s *Set) candidates(w *world) *candidates {
	c := &candidates{set: s}
	at := s.index[w.action]
	if at == nil {
		return c
	}
	var ps [maxMatches]*byResource
	var ls [maxMatches]*leaf
	for _, p := range at.match(w.principal.UID, w.principalParent, &ps) {
		c.n += copy(c.leaves[c.n:], p.match(w.resource.UID, w.resourceParent, &ls))
	}
	return c
}

// context reports whether a candidate mentions the request's context. When none
// does, what is in it makes no difference.
func (c *candidates) context() bool {
	for _, l := range c.leaves[:c.n] {
		if l.context {
			return true
		}
	}
	return false
}

// All yields each candidate once: every rule has one principal and one resource
// scope, so it is in one leaf of an action.
func (c *candidates) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, l := range c.leaves[:c.n] {
			for _, i := range l.rules {
				if r := &c.set.rules[i]; !yield(r.id, r.indexed) {
					return
				}
			}
		}
	}
}
