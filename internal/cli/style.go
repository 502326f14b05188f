package cli

// Style colours clean text, or leaves it alone.
type Style struct{ Color bool }

func (s Style) code(c, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + c + "m" + text + "\x1b[0m"
}

// Bold is for headings and names.
func (s Style) Bold(t string) string { return s.code("1", t) }

// Dim is for what only the curious read.
func (s Style) Dim(t string) string { return s.code("2", t) }

// Good is for what went well.
func (s Style) Good(t string) string { return s.code("32", t) }

// Bad is for refusals and failures.
func (s Style) Bad(t string) string { return s.code("31", t) }

// Warn is for what is weaker than it could be.
func (s Style) Warn(t string) string { return s.code("33", t) }

// Name is for identifiers that a person may copy.
func (s Style) Name(t string) string { return s.code("36", t) }

// Mark is ✓ or ✗.
func (s Style) Mark(ok bool) string {
	if ok {
		return s.Good("✓")
	}
	return s.Bad("✗")
}
