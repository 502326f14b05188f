//go:build linux

package linux

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"agentos/internal/execution/tool"
)

// document is a result that can be made smaller. Methods are called by fit only.
type document interface {
	// lists are the lists that may lose items from their end, least important last.
	lists() []list
	// cuts are JSON pointers to strings that were shortened while reading.
	cuts() []string
}

// list is one shortenable list of a document.
type list struct {
	pointer string
	len     int
	bytes   func() int  // about what the items take
	keep    func(n int) // shortens to n items
}

func listOf[T any](pointer string, s *[]T) list {
	return list{pointer, len(*s), func() int {
		b, _ := json.Marshal(*s) // doc as a whole was encoded before
		return len(b)
	}, func(n int) { *s = (*s)[:n] }}
}

// maxSafe is the largest integer that every JSON reader, and the canonical form,
// holds without loss (RFC 7493 §2.2).
const maxSafe = 1<<53 - 1

// product is a*b, or maxSafe where that is less.
func product(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi > 0 || lo > maxSafe {
		return maxSafe
	}
	return lo
}

// maxCuts bounds the pointers in one result.
const maxCuts = 256

// fit renders doc so that the whole result takes at most limit bytes, dropping
// items from the end of the list that weighs most until it does. What was
// dropped is listed in Truncated.
func fit(doc document, limit int) tool.Result {
	dropped := map[string]bool{}
	for {
		r, size, err := render(doc, dropped)
		if err != nil {
			return tool.Result{Status: "error", Error: "encode result: " + line(err.Error(), 256)}
		}
		if size <= limit {
			return r
		}
		var heavy list
		most := 0
		for _, l := range doc.lists() {
			if n := l.bytes(); l.len > 0 && n > most {
				heavy, most = l, n
			}
		}
		if most == 0 {
			return tool.Result{Status: "error", Error: fmt.Sprintf("encode result: larger than %d bytes", limit),
				Next: "ask for less"}
		}
		// What is proportional to the excess, and at least one, so that few rounds
		// are needed and little more than the excess goes.
		heavy.keep(max(0, heavy.len-1-heavy.len*(size-limit)/most))
		dropped[heavy.pointer] = true
	}
}

func render(doc document, dropped map[string]bool) (tool.Result, int, error) {
	r := tool.Result{Status: "ok"}
	data, err := json.Marshal(doc)
	if err != nil {
		return r, 0, err
	}
	r.Data = data
	for _, l := range doc.lists() {
		if dropped[l.pointer] {
			r.Truncated = append(r.Truncated, l.pointer)
		}
	}
	cuts := doc.cuts()
	r.Truncated = append(r.Truncated, cuts[:min(len(cuts), maxCuts)]...)
	whole, err := json.Marshal(r)
	return r, len(whole), err
}

// itemPointer is the JSON pointer of a member of list item i.
func itemPointer(list string, i int, member string) string {
	var b strings.Builder
	b.WriteString(list)
	b.WriteByte('/')
	b.WriteString(strconv.Itoa(i))
	b.WriteByte('/')
	b.WriteString(member)
	return b.String()
}
