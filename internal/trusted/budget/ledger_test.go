package budget

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"sync"
	"testing"
)

func TestReserveChargesTheWholeChain(t *testing.T) {
	l := NewLedger(State{})
	l.SetLimit("run:a", Amount{Tokens: 100})
	l.SetLimit("owner:1", Amount{Tokens: 150})
	chain := func(run Key) []Key { return []Key{"owner:1", run} }
	if _, err := l.Reserve("c1", chain("run:a"), Amount{Tokens: 100}); err != nil {
		t.Fatal(err)
	}
	_, err := l.Reserve("c2", chain("run:b"), Amount{Tokens: 51})
	var ex *Exceeded
	if !errors.As(err, &ex) || ex.Key != "owner:1" || ex.Reserved != 100 {
		t.Fatalf("owner's budget did not refuse: %v", err)
	}
	if _, err := l.Reserve("c2", chain("run:b"), Amount{Tokens: 50}); err != nil {
		t.Fatalf("exactly what is left was refused: %v", err)
	}
}

func TestRefusedReservationHoldsNothing(t *testing.T) {
	l := NewLedger(State{})
	l.SetLimit("run:a", Amount{ToolCalls: 1})
	if _, err := l.Reserve("c1", []Key{"owner:1", "run:a"}, Amount{ToolCalls: 2}); err == nil {
		t.Fatal("admitted beyond the limit")
	}
	for _, u := range l.Report() {
		if u.Reserved != 0 || u.Used != 0 {
			t.Fatalf("refused call left %+v", u)
		}
	}
}

func TestOverrunIsDebitedAndClosesTheBudget(t *testing.T) {
	l := NewLedger(State{})
	l.SetLimit("run:a", Amount{Tokens: 100})
	must(t, second(l.Reserve("c1", []Key{"run:a"}, Amount{Tokens: 10})))
	must(t, second(l.Settle("c1", Amount{Tokens: 500})))
	if _, err := l.Reserve("c2", []Key{"run:a"}, Amount{Tokens: 0}); err == nil {
		t.Fatal("overrun budget still open")
	}
}

func TestAbsurdUsageDoesNotWrap(t *testing.T) {
	l := NewLedger(State{})
	l.SetLimit("run:a", Amount{Tokens: 100})
	for _, c := range []string{"c1", "c2"} {
		l.SetLimit("run:a", Amount{}) // two calls in flight when the first reports
		must(t, second(l.Reserve(c, []Key{"run:a"}, Amount{Tokens: 1})))
		l.SetLimit("run:a", Amount{Tokens: 100})
	}
	must(t, second(l.Settle("c1", Amount{Tokens: math.MaxInt64})))
	must(t, second(l.Settle("c2", Amount{Tokens: math.MaxInt64})))
	if _, err := l.Reserve("c3", []Key{"run:a"}, Amount{Tokens: 1}); err == nil {
		t.Fatal("budget wrapped around and opened again")
	}
}

func TestSettleTwiceAndUnknown(t *testing.T) {
	l := NewLedger(State{})
	must(t, second(l.Reserve("c1", []Key{"run:a"}, Amount{Tokens: 10})))
	must(t, second(l.Settle("c1", Amount{Tokens: 5})))
	if _, err := l.Settle("c1", Amount{Tokens: 5}); err == nil {
		t.Fatal("settled twice")
	}
	if _, err := l.Reserve("c9", []Key{"run:a"}, Amount{Tokens: -1}); err == nil {
		t.Fatal("negative reservation admitted")
	}
	must(t, second(l.Reserve("c3", []Key{"run:a"}, Amount{Tokens: 1})))
	if _, err := l.Settle("c3", Amount{Tokens: -5}); err == nil {
		t.Fatal("negative use credited")
	}
}

func TestStateComesBack(t *testing.T) {
	l := NewLedger(State{
		Balances: []Balance{{"run:a", Tokens, 40}},
		Open:     []Reservation{{Call: "c1", Keys: []Key{"run:a"}, Amount: Amount{Tokens: 50}}},
	})
	l.SetLimit("run:a", Amount{Tokens: 100})
	if _, err := l.Reserve("c2", []Key{"run:a"}, Amount{Tokens: 11}); err == nil {
		t.Fatal("open reservation of before the restart was forgotten")
	}
	must(t, second(l.Settle("c1", Amount{Tokens: 50})))
	must(t, second(l.Reserve("c2", []Key{"run:a"}, Amount{Tokens: 10})))
}

// TestNoInterleavingAdmitsBeyondLimit is INV-03: whatever the interleaving,
// what is used never exceeds a limit as long as calls use what they reserved.
func TestNoInterleavingAdmitsBeyondLimit(t *testing.T) {
	for seed := range int64(20) {
		l := NewLedger(State{})
		const limit = 1000
		l.SetLimit("owner:1", Amount{Tokens: limit, ToolCalls: 60})
		for r := range 4 {
			l.SetLimit(Key(fmt.Sprint("run:", r)), Amount{Tokens: 400})
		}
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rnd := rand.New(rand.NewSource(seed*100 + int64(w)))
				for i := range 40 {
					call := fmt.Sprint("c", w, "-", i)
					n := rnd.Int63n(60)
					keys := []Key{"owner:1", Key(fmt.Sprint("run:", rnd.Intn(4)))}
					if _, err := l.Reserve(call, keys, Amount{Tokens: n, ToolCalls: 1}); err != nil {
						continue
					}
					if rnd.Intn(10) == 0 {
						l.Release(call)
						continue
					}
					if _, err := l.Settle(call, Amount{Tokens: rnd.Int63n(n + 1), ToolCalls: 1}); err != nil {
						t.Error(err)
					}
				}
			}()
			for _, u := range l.Report() {
				if u.Limit >= 0 && u.Used+u.Reserved > u.Limit {
					t.Errorf("seed %d: %+v", seed, u)
				}
			}
		}
		wg.Wait()
		for _, u := range l.Report() {
			if u.Reserved != 0 || (u.Limit >= 0 && u.Used > u.Limit) {
				t.Fatalf("seed %d: %+v", seed, u)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
