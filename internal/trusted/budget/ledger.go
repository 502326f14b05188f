package budget

import (
	"fmt"
	"math"
	"sort"
	"sync"
)

// Limits gives, by key, the most that may be used. A key or resource that is
// not listed has no limit of its own; a listed zero allows nothing.
type Limits map[Key]Amount

// Exceeded says which budget refused a reservation.
type Exceeded struct {
	Key       Key
	Resource  Resource
	Limit     int64
	Used      int64
	Reserved  int64 // by calls that are still open
	Requested int64
}

// Error names the budget, its limit and what is left.
func (e *Exceeded) Error() string {
	return fmt.Sprintf("budget %s of %s: %d requested, %d left of %d (%d used, %d reserved)",
		e.Resource, e.Key, e.Requested, max(0, e.Limit-e.Used-e.Reserved), e.Limit, e.Used, e.Reserved)
}

type slot struct {
	key Key
	res Resource
}

type account struct{ used, reserved int64 }

// Ledger holds balances and open reservations. Safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	limits Limits
	accts  map[slot]account
	open   map[string]Reservation
}

// NewLedger starts from what the journal kept.
func NewLedger(st State) *Ledger {
	l := &Ledger{limits: Limits{}, accts: map[slot]account{}, open: map[string]Reservation{}}
	for _, b := range st.Balances {
		s := slot{b.Key, b.Resource}
		a := l.accts[s]
		a.used += b.Used
		l.accts[s] = a
	}
	for _, r := range st.Open {
		l.hold(r, 1)
		l.open[r.Call] = r
	}
	return l
}

// SetLimit replaces the limits of one key. A limit below what is already used
// closes the key; nothing is taken back.
func (l *Ledger) SetLimit(k Key, a Amount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(Amount, len(a))
	for r, n := range a {
		c[r] = n
	}
	l.limits[k] = c
}

// Reserve holds amount on every key of the chain, or on none: the first key and
// resource in the given order that lacks room refuses with *Exceeded. Amounts
// must not be negative and the call must not hold a reservation yet.
// Invariant (INV-03): after a successful Reserve, used+reserved <= limit holds
// for every key and resource that it touched.
func (l *Ledger) Reserve(call string, keys []Key, amount Amount) (Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, dup := l.open[call]; dup {
		return Reservation{}, fmt.Errorf("reserve for call %q: already reserved", call)
	}
	if err := l.check(keys, amount); err != nil {
		return Reservation{}, err
	}
	res := Reservation{Call: call, Keys: append([]Key(nil), keys...), Amount: clone(amount)}
	l.hold(res, 1)
	l.open[call] = res
	return res, nil
}

// Check reports whether Reserve would be admitted now, without holding anything.
func (l *Ledger) Check(keys []Key, amount Amount) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(keys, amount)
}

func (l *Ledger) check(keys []Key, amount Amount) error {
	for _, r := range sorted(amount) {
		if amount[r] < 0 {
			return fmt.Errorf("reserve %s: negative amount %d", r, amount[r])
		}
		for _, k := range keys {
			if err := l.room(k, r, amount[r]); err != nil {
				return err
			}
		}
	}
	return nil
}

// room reports whether n more fits. An account already over its limit (a
// provider's overrun) has no room, also not for n = 0: the budget is closed.
func (l *Ledger) room(k Key, r Resource, n int64) error {
	limit, limited := l.limits[k][r]
	if !limited {
		return nil
	}
	a := l.accts[slot{k, r}]
	left := limit - min(limit, a.used) - a.reserved // reserved was admitted below limit: no wrap
	if n > left || left < 0 || a.used > limit {
		return &Exceeded{Key: k, Resource: r, Limit: limit, Used: a.used, Reserved: a.reserved, Requested: n}
	}
	return nil
}

// Settle closes the call's reservation and charges what was used, which may be
// more than was reserved: the overrun is debited and closes the budget. It
// returns the settlement to be made durable. Unknown calls are an error.
func (l *Ledger) Settle(call string, used Amount) (Settlement, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.open[call]
	if !ok {
		return Settlement{}, fmt.Errorf("settle call %q: no open reservation", call)
	}
	for res, n := range used {
		if n < 0 {
			return Settlement{}, fmt.Errorf("settle %s: negative amount %d", res, n)
		}
	}
	delete(l.open, call)
	l.hold(r, -1)
	for _, k := range r.Keys {
		for res, n := range used {
			s := slot{k, res}
			a := l.accts[s]
			a.used = addSat(a.used, n)
			l.accts[s] = a
		}
	}
	return Settlement{Call: call, Keys: r.Keys, Used: clone(used)}, nil
}

// Release drops a reservation whose intent never became durable. Nothing is
// charged. Unknown calls are ignored.
func (l *Ledger) Release(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.open[call]; ok {
		delete(l.open, call)
		l.hold(r, -1)
	}
}

// Usage is one line of a report.
type Usage struct {
	Key            Key
	Resource       Resource
	Used, Reserved int64
	Limit          int64 // -1: none
}

// Report lists every account and limit, sorted by key and resource.
func (l *Ledger) Report() []Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[slot]bool{}
	for s := range l.accts {
		seen[s] = true
	}
	for k, a := range l.limits {
		for r := range a {
			seen[slot{k, r}] = true
		}
	}
	out := make([]Usage, 0, len(seen))
	for s := range seen {
		u := Usage{Key: s.key, Resource: s.res, Used: l.accts[s].used, Reserved: l.accts[s].reserved, Limit: -1}
		if n, ok := l.limits[s.key][s.res]; ok {
			u.Limit = n
		}
		out = append(out, u)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Key != out[j].Key {
			return out[i].Key < out[j].Key
		}
		return out[i].Resource < out[j].Resource
	})
	return out
}

func (l *Ledger) hold(r Reservation, sign int64) {
	for _, k := range r.Keys {
		for res, n := range r.Amount {
			s := slot{k, res}
			a := l.accts[s]
			a.reserved += sign * n
			l.accts[s] = a
		}
	}
}

// addSat adds without wrapping: a provider that reports an absurd use must close
// the budget, not reopen it.
func addSat(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

func sorted(a Amount) []Resource {
	out := make([]Resource, 0, len(a))
	for r := range a {
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

func clone(a Amount) Amount {
	c := make(Amount, len(a))
	for r, n := range a {
		c[r] = n
	}
	return c
}
