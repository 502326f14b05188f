package model

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestFromContext(t *testing.T) {
	t.Parallel()
	if err := FromContext(context.Background()); err != nil {
		t.Errorf("alive: %v", err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	late, stop := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer stop()
	for want, ctx := range map[Reason]context.Context{ReasonCancelled: cancelled, ReasonTimeout: late} {
		err := fmt.Errorf("call: %w", FromContext(ctx))
		if ReasonOf(err) != want || !errors.Is(err, ctx.Err()) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	e := &Error{Reason: ReasonServer, Msg: "boom"}
	if e.Error() != "server_error: boom" {
		t.Errorf("renders as %q", e)
	}
	if r := ReasonOf(errors.New("x")); r != "" {
		t.Errorf("reason %q of another error", r)
	}
}
