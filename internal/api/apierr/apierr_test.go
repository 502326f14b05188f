package apierr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"agentos/internal/lib/fault"

	"connectrpc.com/connect"
)

var kinds = []fault.Kind{fault.Usage, fault.Denied, fault.NotFound, fault.Unavailable, fault.Limit, fault.Timeout,
	fault.Cancelled, fault.Conflict, fault.Corrupt, fault.Malformed, fault.Internal}

func TestEveryKindSurvivesTheAPI(t *testing.T) {
	t.Parallel()
	seen := map[connect.Code]bool{}
	for _, k := range kinds {
		in := fault.Wrap(errors.New("cause"), k, "do that", "open thing %q", "x")
		wire := ToConnect(fmt.Errorf("outer: %w", in))
		out := FromConnect(wire)
		if fault.KindOf(out) != k || fault.NextOf(out) != "do that" || out.Error() != `outer: open thing "x": cause` {
			t.Errorf("%s: %s %q next %q", k, fault.KindOf(out), out, fault.NextOf(out))
		}
		if c := connect.CodeOf(wire); seen[c] {
			t.Errorf("%s shares its status %s", k, c)
		} else {
			seen[c] = true
		}
		// Without the detail, the status alone says the kind.
		if got := fault.KindOf(FromConnect(connect.NewError(Code(k), errors.New("m")))); got != k {
			t.Errorf("%s without detail is %s", k, got)
		}
	}
}

func TestForeignErrors(t *testing.T) {
	t.Parallel()
	if ToConnect(nil) != nil || FromConnect(nil) != nil {
		t.Error("nil is no error")
	}
	for err, want := range map[error]fault.Kind{
		context.Canceled: fault.Cancelled, context.DeadlineExceeded: fault.Timeout, errors.New("x"): fault.Internal,
	} {
		if got := fault.KindOf(FromConnect(err)); got != want {
			t.Errorf("from %v: %s", err, got)
		}
		if got := connect.CodeOf(ToConnect(err)); got != Code(want) {
			t.Errorf("to %v: %s", err, got)
		}
	}
	for code, want := range map[connect.Code]fault.Kind{
		connect.CodeUnimplemented: fault.Unavailable, connect.CodeUnauthenticated: fault.Denied, connect.CodeUnknown: fault.Internal,
		connect.CodeFailedPrecondition: fault.Conflict,
	} {
		if got := fault.KindOf(FromConnect(connect.NewError(code, errors.New("m")))); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
	if next := fault.NextOf(FromConnect(connect.NewError(connect.CodeUnimplemented, nil))); next == "" {
		t.Error("an unknown method needs a next step")
	}
	kept := connect.NewError(connect.CodeNotFound, errors.New("m"))
	if ToConnect(kept) != error(kept) {
		t.Error("a finished status is kept")
	}
	f := fault.New(fault.Limit, "n", "m")
	if FromConnect(f) != error(f) {
		t.Error("a fault is kept")
	}
}

func TestTextIsBoundedAndValid(t *testing.T) {
	t.Parallel()
	out := FromConnect(ToConnect(fault.New(fault.Usage, strings.Repeat("n", 1<<20), "\xff%s", strings.Repeat("é", 1<<20))))
	if len(out.Error()) > maxText+8 || len(fault.NextOf(out)) > maxText+8 || !utf8.ValidString(out.Error()) {
		t.Errorf("%d %d", len(out.Error()), len(fault.NextOf(out)))
	}
	unknown := fault.New("nonsense", "n", "m")
	if got := fault.KindOf(FromConnect(ToConnect(unknown))); got != fault.Internal {
		t.Errorf("unknown kind arrives as %s", got)
	}
}
