package cli

import (
	"io"
	"strings"

	"agentos/internal/lib/termsafe"
)

// Table lines up columns. Cells are made safe when they are added; the last
// column is cut to the width of the terminal.
type Table struct {
	style Style
	width int
	rows  [][]cell
}

type cell struct {
	text  string
	paint func(string) string
}

// NewTable makes a table with bold headings. No headings: none are shown.
func (e *Env) NewTable(head ...string) *Table {
	t := &Table{style: e.Style, width: e.Width}
	if len(head) > 0 {
		t.row(t.style.Bold, head)
	}
	return t
}

func (t *Table) row(paint func(string) string, texts []string) {
	r := make([]cell, len(texts))
	for i, s := range texts {
		r[i] = cell{text: termsafe.Line(s), paint: paint}
	}
	t.rows = append(t.rows, r)
}

// Row adds one row.
func (t *Table) Row(cells ...string) { t.row(nil, cells) }

// Paint colours cell i of the newest row.
func (t *Table) Paint(i int, paint func(string) string) { t.rows[len(t.rows)-1][i].paint = paint }

// Empty reports whether there is no row besides the headings.
func (t *Table) Empty() bool { return len(t.rows) < 2 }

// Write prints the table, each line after indent.
func (t *Table) Write(w io.Writer, indent string) {
	var widths []int
	for _, r := range t.rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], termsafe.Width(c.text))
		}
	}
	var b strings.Builder
	for _, r := range t.rows {
		b.WriteString(indent)
		used, last := len(indent), len(r)-1
		for last > 0 && r[last].text == "" {
			last--
		}
		for i, c := range r[:last+1] {
			if i == last && t.width > 0 {
				c.text = termsafe.Cut(c.text, max(t.width-used, 8))
			}
			pad := widths[i] - termsafe.Width(c.text) + 2
			used += widths[i] + 2
			if c.paint != nil {
				c.text = c.paint(c.text)
			}
			b.WriteString(c.text)
			if i < last {
				b.WriteString(strings.Repeat(" ", pad))
			}
		}
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(w, b.String())
}
