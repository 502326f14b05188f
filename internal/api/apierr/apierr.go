// Package apierr is the one place where a fault becomes an API status and an
// API error becomes a fault again.
//
// State owned: none. Imports: lib/fault, api/agentosv1, connect. Imported by:
// API handlers (control, cmd/agentosd) and client. Invariants: a fault that
// crosses the API keeps kind, message and next step (agentos.v1.Fault is
// attached as a detail); an error from elsewhere becomes the fault that its
// status means; text is valid UTF-8 and bounded on both sides.
// Tests: apierr_test.go.
package apierr

import (
	"context"
	"errors"
	"strings"

	"agentos/internal/api/agentosv1"
	"agentos/internal/lib/fault"

	"connectrpc.com/connect"
)

// maxText bounds one text of a fault in bytes.
const maxText = 16 << 10

var codes = map[fault.Kind]connect.Code{
	fault.Usage: connect.CodeInvalidArgument, fault.Denied: connect.CodePermissionDenied,
	fault.NotFound: connect.CodeNotFound, fault.Unavailable: connect.CodeUnavailable,
	fault.Limit: connect.CodeResourceExhausted, fault.Timeout: connect.CodeDeadlineExceeded,
	fault.Cancelled: connect.CodeCanceled, fault.Conflict: connect.CodeAborted,
	fault.Corrupt: connect.CodeDataLoss, fault.Malformed: connect.CodeOutOfRange,
	fault.Internal: connect.CodeInternal,
}

// Code is the API status of a kind; Internal for one outside the set.
func Code(k fault.Kind) connect.Code {
	if c, ok := codes[k]; ok {
		return c
	}
	return connect.CodeInternal
}

// kind is the inverse of Code, with the statuses that only the transport uses.
func kind(c connect.Code) fault.Kind {
	for k, have := range codes {
		if have == c {
			return k
		}
	}
	switch c {
	case connect.CodeUnimplemented:
		return fault.Unavailable
	case connect.CodeUnauthenticated:
		return fault.Denied
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition:
		return fault.Conflict
	}
	return fault.Internal
}

// ToConnect makes the error that a handler returns; nil stays nil. A bare
// context error is Cancelled or Timeout.
func ToConnect(err error) error {
	if err == nil {
		return nil
	}
	var ready *connect.Error
	if errors.As(err, &ready) {
		return ready
	}
	k := fault.KindOf(err)
	if k == fault.Internal {
		switch {
		case errors.Is(err, context.Canceled):
			k = fault.Cancelled
		case errors.Is(err, context.DeadlineExceeded):
			k = fault.Timeout
		}
	}
	msg := bound(err.Error())
	out := connect.NewError(Code(k), errors.New(msg))
	detail, derr := connect.NewErrorDetail(&agentosv1.Fault{Kind: string(k), Message: msg, Next: bound(fault.NextOf(err))})
	if derr == nil {
		out.AddDetail(detail)
	}
	return out
}

// FromConnect makes the fault that an API error carries; nil stays nil. Errors
// that are faults already stay as they are.
func FromConnect(err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		switch {
		case errors.Is(err, context.Canceled):
			return fault.New(fault.Cancelled, "", "cancelled")
		case errors.Is(err, context.DeadlineExceeded):
			return fault.New(fault.Timeout, "try again, or raise the limit", "deadline passed")
		}
		return fault.New(fault.Internal, "", "%s", bound(err.Error()))
	}
	for _, d := range ce.Details() {
		v, err := d.Value()
		if err != nil {
			continue
		}
		if pf, ok := v.(*agentosv1.Fault); ok {
			k := fault.Kind(pf.GetKind())
			if _, known := codes[k]; !known {
				k = kind(ce.Code())
			}
			return fault.New(k, bound(pf.GetNext()), "%s", bound(pf.GetMessage()))
		}
	}
	next := ""
	if ce.Code() == connect.CodeUnimplemented {
		next = "use agentos and agentosd of the same version"
	}
	return fault.New(kind(ce.Code()), next, "%s", bound(ce.Message()))
}

func bound(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
