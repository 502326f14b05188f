package client

import (
	"fmt"
	"strings"
	"sync"

	"agentos/internal/lib/fault"
)

// tailBytes and tailLines bound what is kept and shown of agentosd's stderr.
const (
	tailBytes = 16 << 10
	tailLines = 20
)

// tail keeps the last bytes written to it. Safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
	cut bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf, t.cut = append(t.buf[:0], t.buf[over:]...), true
	}
	return len(p), nil
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	ls := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.buf), "\uFFFD")), "\n")
	if t.cut && len(ls) > 1 {
		ls = ls[1:] // the first one is a part
	}
	return ls[max(0, len(ls)-tailLines):]
}

// died is the fault of an agentosd that ended with code: what it said in the
// form in which every binary of AgentOS says it ("agentosd: message", "next:
// step"), else its last lines as they are.
func (t *tail) died(code int, how string) error {
	ls := t.lines()
	for i := len(ls) - 1; i >= 0; i-- {
		msg, ok := strings.CutPrefix(ls[i], "agentosd: ")
		if !ok || code <= 0 {
			continue
		}
		next := ""
		for _, l := range ls[i+1:] {
			if n, ok := strings.CutPrefix(l, "next: "); ok {
				next = n
				break
			}
			msg += "\n" + l
		}
		return fault.New(kindOf(code), next, "%s", msg)
	}
	said := ""
	if len(ls) > 0 && ls[0] != "" {
		said = "\n  | " + strings.Join(ls, "\n  | ")
	}
	return fault.New(fault.Internal, "run agentos doctor; if it stays, report it with these lines", "agentosd ended early (%s)%s", how, said)
}

// kindOf is the inverse of fault.Kind.ExitCode.
func kindOf(code int) fault.Kind {
	for _, k := range []fault.Kind{fault.Usage, fault.Denied, fault.NotFound, fault.Unavailable, fault.Limit,
		fault.Timeout, fault.Conflict, fault.Corrupt, fault.Malformed, fault.Cancelled} {
		if k.ExitCode() == code {
			return k
		}
	}
	return fault.Internal
}

func exitText(code int, signal string) string {
	if signal != "" {
		return "signal: " + signal
	}
	return fmt.Sprintf("exit status %d", code)
}
