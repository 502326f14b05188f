package audit

const (
	strControl = iota
	strPlain
	strQuote
	strEscape
	strHigh
)

// Tables are filled by expression, not init: they are constants of the format.
var (
	strClass = func() (t [256]uint8) {
		for i := range t {
			switch {
			case i == '"':
				t[i] = strQuote
			case i == '\\':
				t[i] = strEscape
			case i < 0x20:
				t[i] = strControl
			case i >= 0x80:
				t[i] = strHigh
			default:
				t[i] = strPlain
			}
		}
		return t
	}()
	escapeChar = [256]bool{'"': true, '\\': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}
	idChar     = func() (t [256]bool) {
		for c := range t {
			t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
				c == '.' || c == '_' || c == ':' || c == '@' || c == '/' || c == '-'
		}
		return t
	}()
)

func validID(s string) bool {
	for i := range len(s) {
		if !idChar[s[i]] {
			return false
		}
	}
	return len(s) <= MaxID
}

// validName: a lower-case letter, then lower-case letters, digits, ._-
func validName(s string) bool {
	if s == "" || len(s) > maxName || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// depth is the nesting of a JSON document that is known to be well formed.
func depth(doc []byte) (deepest int) {
	d, inString := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			d++
			deepest = max(deepest, d)
		case c == '}' || c == ']':
			d--
		}
	}
	return deepest
}
