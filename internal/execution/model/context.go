package model

import (
	"context"
	"errors"
)

// FromContext is the error of a call that ended because ctx did: a timeout when
// its deadline passed, else a cancellation. It returns nil while ctx is alive.
func FromContext(ctx context.Context) *Error {
	err := ctx.Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Reason: ReasonTimeout, Msg: "the model did not answer in time",
			Next: "allow more time, or use a faster model", Err: err}
	default:
		return &Error{Reason: ReasonCancelled, Msg: "the call was cancelled", Err: err}
	}
}
