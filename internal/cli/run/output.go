package run

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/termfilter"
	"agentos/internal/lib/termsafe"
)

// output is one of our two output streams. Bytes pass unchanged, except to a
// terminal.
type output struct {
	w      io.Writer
	filter *termfilter.Filter // nil: not a terminal
	buf    []byte
}

// outputs is called once it is known what this is about. With --json the
// messages were printed already.
func (s *session) outputs() {
	s.out, s.err = &output{w: s.e.Out}, &output{w: s.e.Err}
	if s.e.JSON {
		s.out.w, s.err.w = io.Discard, io.Discard
		return
	}
	if s.e.OutTerm {
		s.out.filter = termfilter.New(termfilter.Config{Name: s.name, Queries: s.term != nil})
	}
	if s.e.ErrTerm {
		s.err.filter = termfilter.New(termfilter.Config{Name: s.name})
	}
}

func (o *output) write(b []byte) error {
	if o.filter != nil {
		o.buf = o.filter.Append(o.buf[:0], b)
		b = o.buf
	}
	if _, err := o.w.Write(b); err != nil {
		return fault.Wrap(err, fault.Unavailable, "check the disk or the reader of the output", "write output")
	}
	return nil
}

// end gives the terminal its modes back. The run is over: errors change nothing.
func (o *output) end() {
	if o.filter != nil {
		_, _ = o.w.Write(o.filter.End(nil))
	}
}

// answerGrace is how long the terminal may take to answer at the end.
const answerGrace = 150 * time.Millisecond

// finish takes the program off our streams. What the terminal still answers to
// its questions must not be typed into the shell: answers come in order, so when
// one to a question of our own is there, the others were before. ask is off when
// the end is not orderly.
func (s *session) finish(ask bool) {
	s.set(func() { s.running, s.over = false, true })
	s.out.end()
	s.err.end()
	if ask && s.term.isRaw() && s.out.filter != nil && s.out.filter.Asked() {
		_, _ = io.WriteString(s.e.Out, "\x1b[5n")
		limit := time.NewTimer(answerGrace)
		defer limit.Stop()
		var got []byte
		for !bytes.Contains(got, []byte("\x1b[0n")) && len(got) < 64<<10 {
			select {
			case b := <-s.keys:
				got = append(got, b...)
				continue
			case <-limit.C:
			}
			break
		}
	}
	s.term.restore()
}

// say prints a line of ours on standard error, also while the terminal is raw.
func (s *session) say(text string) {
	if s.quiet {
		return
	}
	eol := "\n"
	if s.term.isRaw() {
		eol = "\r\n"
	}
	fmt.Fprintf(s.e.Err, "agentos: %s%s", termsafe.Line(text), eol)
}

// maxLine is what the one line about the sandbox may take, in cells.
const maxLine = 110

// confinement is the line: the run, its profile and strength, and the layers in
// short. All of them are in agentos inspect.
func confinement(st *agentosv1.RunStarted) string {
	var layers []string
	spaces := int64(0)
	for _, l := range st.GetLayers() {
		l, _, _ = strings.Cut(l, " (")
		if strings.HasSuffix(l, " namespace") {
			spaces++
			continue
		}
		layers = append(layers, l)
	}
	slices.SortStableFunc(layers, func(a, b string) int { return weight(a) - weight(b) })
	if spaces > 0 {
		layers = append([]string{cli.Count(spaces, "namespace")}, layers...)
	}
	line := fmt.Sprintf("%s, profile %s, %s", st.GetRun(), st.GetProfile(), st.GetStrength())
	sep := ": "
	for i, l := range layers {
		more := fmt.Sprintf(", %d more", len(layers)-i)
		if termsafe.Width(line+sep+l)+len(more) > maxLine && i > 0 {
			return line + more
		}
		line += sep + l
		sep = ", "
	}
	return line
}

// weight puts first what a person would ask about first.
func weight(layer string) int {
	for i, w := range []string{"namespace", "own uid", "private root", "landlock", "seccomp"} {
		if strings.HasPrefix(strings.ToLower(layer), w) {
			return i
		}
	}
	return 9
}

// announce says what confines the program, before it writes anything.
func (s *session) announce(detach bool) {
	st := s.started
	if !s.attached {
		s.say(confinement(st))
	}
	if m := st.GetMissing(); len(m) > 0 {
		s.say("note: nothing on this host enforces " + strings.Join(m, ", "))
	}
	for _, n := range st.GetNotices() {
		s.say("note: " + n)
	}
	if detach && !s.e.JSON {
		s.e.Printf("%s\n", termsafe.Line(st.GetRun()))
	}
}
