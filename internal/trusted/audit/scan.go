package audit

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"time"
	"unicode/utf8"
)

// header is what the scanner reads off a record without allocating. All slices
// point into the record.
type header struct {
	agent, at, body, call, kind, payloads, run []byte
	owner, seq                                 uint64
}

// scan reads a record in its canonical key order in one pass. It answers true
// only for bytes that decodeStrict accepts too; false means "look closer", not
// "malformed": rare but legal forms (fractions, \u escapes, 29 February) are
// left to the strict decoder. FuzzDecode holds the two together.
func scan(b []byte) (h header, ok bool) {
	if len(b) > MaxRecord {
		return h, false
	}
	s := scanner{b: b}
	h.agent = s.id(`{"agent":"`)
	h.at = s.time(`","at":"`)
	s.lit(`","body":`)
	start := s.i
	if s.ok() && (s.i >= len(b) || b[s.i] != '{') {
		return h, false
	}
	s.value(0)
	if s.bad || s.i-start > MaxBody {
		return h, false
	}
	h.body = b[start:s.i]
	h.call = s.id(`,"call":"`)
	h.kind = s.id(`","kind":"`)
	h.owner = s.uint(`","owner":`)
	s.lit(`,"payloads":`)
	h.payloads = s.payloads()
	h.run = s.id(`,"run":"`)
	h.seq = s.uint(`","seq":`)
	s.lit(`,"v":1}`)
	if s.bad || s.i != len(b) || h.owner > 1<<32-1 || h.seq > maxSeq {
		return h, false
	}
	k := Kind(h.kind)
	if !k.Valid() || k.OfCall() && len(h.call) == 0 {
		return h, false
	}
	return h, true
}

// scanObject reports whether b surely is a canonical object; false as in scan.
func scanObject(b []byte) bool {
	s := scanner{b: b}
	if len(b) == 0 || b[0] != '{' {
		return false
	}
	s.value(0)
	return s.ok() && s.i == len(b)
}

// record copies the header out of the buffer; the body stays a slice of it.
func (h header) record() Record {
	at, _ := time.Parse(timeLayout, string(h.at)) // scanned: it parses
	r := Record{
		Seq: h.seq, At: at, Kind: Kind(h.kind), Run: string(h.run), Call: string(h.call),
		Agent: string(h.agent), Owner: uint32(h.owner), Body: h.body,
	}
	for p := h.payloads; len(p) > 2; { // {"name":"commitment",…}
		p = p[2:]
		n := bytes.IndexByte(p, '"')
		name := string(p[:n])
		p = p[n+3:]
		n = bytes.IndexByte(p, '"')
		if r.Payloads == nil {
			r.Payloads = make(map[string]string)
		}
		r.Payloads[name] = string(p[:n])
		p = p[n+1:]
	}
	return r
}

type scanner struct {
	b   []byte
	i   int
	bad bool
}

func (s *scanner) ok() bool { return !s.bad }

func (s *scanner) lit(l string) {
	if s.bad || len(s.b)-s.i < len(l) || string(s.b[s.i:s.i+len(l)]) != l {
		s.bad = true
		return
	}
	s.i += len(l)
}

// id reads a literal and then ID characters up to, not over, the closing quote.
func (s *scanner) id(l string) []byte {
	s.lit(l)
	if s.bad {
		return nil
	}
	b, n := s.b[s.i:], 0
	for n < len(b) && idChar[b[n]] {
		n++
	}
	s.i += n
	if n >= len(b) || b[n] != '"' || n > MaxID {
		s.bad = true
	}
	return b[:n]
}

func (s *scanner) uint(l string) (n uint64) {
	s.lit(l)
	if s.bad {
		return 0
	}
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 && s.i-start < 17 {
		n = n*10 + uint64(s.b[s.i]-'0')
		s.i++
	}
	if s.i == start || s.b[start] == '0' && s.i > start+1 {
		s.bad = true
	}
	return n
}

var daysIn = [13]int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// time reads the fixed-width time; odd ones go to the strict decoder.
func (s *scanner) time(l string) []byte {
	s.lit(l)
	if s.bad || len(s.b)-s.i < len(timeLayout) {
		s.bad = true
		return nil
	}
	t := s.b[s.i : s.i+len(timeLayout)]
	bad := false
	for i := range timeLayout { // without an early end: it rarely is one
		want, got := timeLayout[i], t[i]
		if want-'0' <= 9 {
			bad = bad || got-'0' > 9
		} else {
			bad = bad || want != got
		}
	}
	if bad {
		s.bad = true
		return nil
	}
	two := func(i int) int { return int(t[i]-'0')*10 + int(t[i+1]-'0') }
	y, mo, d := two(0)*100+two(2), two(5), two(8)
	if y < 1970 || mo < 1 || mo > 12 || d < 1 || d > daysIn[mo] || two(11) > 23 || two(14) > 59 || two(17) > 59 {
		s.bad = true
		return nil
	}
	s.i += len(timeLayout)
	return t
}

// value skips one canonical JSON value.
func (s *scanner) value(depth int) {
	if s.bad || s.i >= len(s.b) {
		s.bad = true
		return
	}
	switch c := s.b[s.i]; {
	case c == '"':
		s.str()
	case c == '{':
		s.object(depth + 1)
	case c == '[':
		s.array(depth + 1)
	case c == 't':
		s.lit("true")
	case c == 'f':
		s.lit("false")
	case c == 'n':
		s.lit("null")
	default:
		s.number()
	}
}

func (s *scanner) object(depth int) {
	s.i++
	if depth > MaxBodyDepth || s.i >= len(s.b) {
		s.bad = true
		return
	}
	if s.b[s.i] == '}' {
		s.i++
		return
	}
	var prev []byte
	for first := true; ; first = false {
		key, plain := s.str()
		// Byte order is RFC 8785's order only for ASCII.
		if !plain || !first && bytes.Compare(prev, key) >= 0 {
			s.bad = true
			return
		}
		prev = key
		s.lit(":")
		s.value(depth)
		if s.end('}') {
			return
		}
	}
}

func (s *scanner) array(depth int) {
	s.i++
	if depth > MaxBodyDepth || s.i >= len(s.b) {
		s.bad = true
		return
	}
	if s.b[s.i] == ']' {
		s.i++
		return
	}
	for {
		s.value(depth)
		if s.end(']') {
			return
		}
	}
}

// end reads a comma (false) or the closing byte (true); true also when bad.
func (s *scanner) end(closing byte) bool {
	if s.bad || s.i >= len(s.b) {
		s.bad = true
		return true
	}
	c := s.b[s.i]
	s.i++
	if c == closing {
		return true
	}
	s.bad = c != ','
	return s.bad
}

// str reads a string; plain means ASCII without escapes.
func (s *scanner) str() (content []byte, plain bool) {
	if s.bad || s.i >= len(s.b) || s.b[s.i] != '"' {
		s.bad = true
		return nil, false
	}
	s.i++
	start, plain, high := s.i, true, false
	for s.i += plainRun(s.b[s.i:]); s.i < len(s.b); s.i += plainRun(s.b[s.i:]) {
		c := s.b[s.i]
		switch strClass[c] {
		case strPlain:
			s.i++
		case strQuote:
			content = s.b[start:s.i]
			s.i++
			if high && !utf8.Valid(content) {
				s.bad = true
			}
			return content, plain
		case strHigh:
			plain, high = false, true
			s.i++
		case strEscape:
			plain = false
			if s.i+1 >= len(s.b) || !escapeChar[s.b[s.i+1]] {
				s.bad = true
				return nil, false
			}
			s.i += 2
		default: // control characters
			s.bad = true
			return nil, false
		}
	}
	s.bad = true
	return nil, false
}

// plainRun counts bytes that are neither control, quote, backslash nor high, eight
// at a time: it may stop early, never late.
func plainRun(b []byte) (n int) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(b)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, escape := w^ones*'"', w^ones*'\\'
		// A top bit is set for each such byte; a borrow sets others only above it.
		found := (w | (w-ones*0x20)&^w | (quote-ones)&^quote | (escape-ones)&^escape) & tops
		if found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	return n
}

// number takes integers of at most 15 digits; others are left to Decode.
func (s *scanner) number() {
	if s.b[s.i] == '-' {
		s.i++
		if s.i < len(s.b) && s.b[s.i] == '0' {
			s.bad = true
			return
		}
	}
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	n := s.i - start
	if n == 0 || n > 15 || s.b[start] == '0' && n > 1 {
		s.bad = true
		return
	}
	if s.i < len(s.b) {
		if c := s.b[s.i]; c == '.' || c == 'e' || c == 'E' {
			s.bad = true
		}
	}
}

// payloads reads the object of names and commitments.
func (s *scanner) payloads() []byte {
	if s.bad || s.i >= len(s.b) || s.b[s.i] != '{' {
		s.bad = true
		return nil
	}
	start := s.i
	s.i++
	if s.i < len(s.b) && s.b[s.i] == '}' {
		s.i++
		return s.b[start:s.i]
	}
	var prev []byte
	for n := 0; ; n++ {
		name, plain := s.str()
		if !plain || n >= MaxPayloads || bytes.Compare(prev, name) >= 0 || !validName(string(name)) {
			s.bad = true
			return nil
		}
		prev = name
		s.lit(":")
		c, _ := s.str()
		if s.bad || !ValidCommitment(string(c)) {
			s.bad = true
			return nil
		}
		if s.end('}') {
			return s.b[start:s.i]
		}
	}
}
