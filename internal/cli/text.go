package cli

import (
	"fmt"
	"strings"
	"time"

	"agentos/internal/lib/termsafe"
)

// Para prints untrusted text, made safe and wrapped to the terminal, each line
// after indent.
func (e *Env) Para(indent, text string) {
	clean := strings.TrimRight(termsafe.Text(text), "\n")
	if clean == "" {
		return
	}
	lines := strings.Split(clean, "\n")
	if e.Width > 0 {
		lines = termsafe.Wrap(clean, e.Width-termsafe.Width(indent))
	}
	for _, l := range lines {
		e.Printf("%s\n", strings.TrimRight(indent+l, " "))
	}
}

// Short is untrusted text on one line of at most n cells.
func Short(s string, n int) string { return termsafe.Cut(termsafe.Line(s), n) }

// Took is a duration for people: 340 µs, 1.8 ms, 12 ms, 1.3 s, 2 m 05 s.
func Took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60)
}

// Count is a number with its noun: 1 call, 2 calls.
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Bytes is a size for people.
func Bytes(n uint64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// When is a time as tables show it: UTC, to the second.
func When(t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
