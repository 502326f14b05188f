package loop

import (
	"context"
	"errors"
	"strings"

	"agentos/internal/lib/endreason"
)

// ModelError is a failure that the model endpoint reported. Code is the code of
// its error body: a backend's reason ("not_understood", "malformed", …), or
// "budget_RESOURCE" or "denied_STAGE" from the gate.
type ModelError struct {
	Code string
	Msg  string // one line, bounded
}

// Error renders the message, after the code if there is one.
func (e *ModelError) Error() string {
	if e.Code == "" {
		return e.Msg
	}
	return e.Code + ": " + e.Msg
}

// ended reports that ctx is over, and by which limit.
func ended(ctx context.Context) *ending {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(context.Cause(ctx), errElapsed):
		return stop(endreason.LimitElapsed, "the elapsed limit of the run was reached")
	default:
		return stop(endreason.Cancelled, "the run was cancelled")
	}
}

// broken is an error of tools that is no result: the connection is gone.
func (r *run) broken(ctx context.Context, err error) *ending {
	if end := ended(ctx); end != nil {
		return end
	}
	return stop(endreason.Crashed, "tools can't be reached: %v", err)
}

// modelEnding maps a failed turn to its reason.
func modelEnding(ctx context.Context, err error) *ending {
	if end := ended(ctx); end != nil {
		return end
	}
	var e *ModelError
	if !errors.As(err, &e) {
		return stop(endreason.ModelError, "%v", err)
	}
	reason := endreason.ModelError
	switch e.Code {
	case "not_understood":
		reason = endreason.NotUnderstood
	case "malformed", "truncated", "too_large":
		reason = endreason.ModelMalformed
	case "cancelled":
		reason = endreason.Cancelled
	default:
		if res, ok := strings.CutPrefix(e.Code, "budget_"); ok {
			reason = budgetReason(res)
		} else if strings.HasPrefix(e.Code, "denied_") {
			reason = endreason.Refused
		}
	}
	return stop(reason, "%s", e.Msg)
}

// budgetReason is the end that a used-up budget means.
func budgetReason(resource string) endreason.Reason {
	switch resource {
	case "tokens":
		return endreason.LimitTotalTokens
	case "tool_calls":
		return endreason.LimitToolCalls
	case "model_calls":
		return endreason.LimitIterations
	default:
		return endreason.Refused
	}
}
