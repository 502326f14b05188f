// Package fault is the closed set of error kinds that AgentOS shows to people
// and programs. A fault says what happened and what to do next.
//
// State owned: none. Imports: standard library only. Imported by: every room.
// Each kind maps to exactly one exit code (ExitCode) and one API status (in
// internal/api); nothing else decides how an error looks outside.
// Tests: fault_test.go.
package fault

import (
	"errors"
	"fmt"
)

// Kind classifies an error for the outside.
type Kind string

// The closed set. Adding one means adding its exit code and its API status.
const (
	Usage       Kind = "usage"       // the request itself is wrong
	Denied      Kind = "denied"      // a gate stage refused
	NotFound    Kind = "not_found"   // the named thing does not exist
	Unavailable Kind = "unavailable" // a host feature or service is missing
	Limit       Kind = "limit"       // a budget, size or count limit was reached
	Timeout     Kind = "timeout"     // a deadline passed
	Cancelled   Kind = "cancelled"   // the caller gave up
	Conflict    Kind = "conflict"    // another instance or version is in the way
	Corrupt     Kind = "corrupt"     // stored or received bytes fail verification
	Malformed   Kind = "malformed"   // bytes from outside do not parse
	Internal    Kind = "internal"    // a bug or an exhausted host
)

// Error is a fault. The zero value is not meaningful; use New or Wrap.
type Error struct {
	Kind Kind
	Msg  string // "verb object %q", lower case, without secrets
	Next string // what to do next; empty only for Internal and Cancelled
	Err  error  // inner cause, may be nil
}

// Error renders the message and its cause, not the next step.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Msg + ": " + e.Err.Error()
	}
	return e.Msg
}

// Unwrap returns the inner cause.
func (e *Error) Unwrap() error { return e.Err }

// New makes a fault with a message and a next step.
func New(k Kind, next, format string, args ...any) *Error {
	return &Error{Kind: k, Msg: fmt.Sprintf(format, args...), Next: next}
}

// Wrap is New with an inner cause.
func Wrap(err error, k Kind, next, format string, args ...any) *Error {
	return &Error{Kind: k, Msg: fmt.Sprintf(format, args...), Next: next, Err: err}
}

// KindOf returns the kind of the outermost fault in err's chain; Internal when
// there is none, and the empty kind for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var f *Error
	if errors.As(err, &f) {
		return f.Kind
	}
	return Internal
}

// NextOf returns the first next step found in err's chain.
func NextOf(err error) string {
	for err != nil {
		var f *Error
		if !errors.As(err, &f) {
			return ""
		}
		if f.Next != "" {
			return f.Next
		}
		err = f.Err
	}
	return ""
}

// ExitCode maps a kind to the process exit code, as docs/spec/exit-codes.md
// lists them.
func (k Kind) ExitCode() int {
	switch k {
	case "":
		return 0
	case Usage:
		return 2
	case Denied:
		return 3
	case NotFound:
		return 4
	case Unavailable:
		return 5
	case Limit:
		return 6
	case Timeout:
		return 7
	case Conflict:
		return 8
	case Corrupt:
		return 9
	case Malformed:
		return 20
	case Cancelled:
		return 130
	default:
		return 1
	}
}
