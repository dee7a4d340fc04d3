package bench

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table is a table of figures for people. The first column names the row.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string
	Notes   []string // below the table
}

func (t *Table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case float64:
			row[i] = figure(c)
		default:
			row[i] = fmt.Sprint(c)
		}
	}
	t.Rows = append(t.Rows, row)
}

// orDash returns v, or "-" if v is 0 because it was not measured.
func orDash(v float64) any {
	if v == 0 {
		return "-"
	}
	return v
}

// figure formats v with three or four significant digits.
func figure(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Text writes tables for a terminal.
func Text(w io.Writer, tables []Table) error {
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, t.Title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range append([][]string{t.Columns}, t.Rows...) {
			fmt.Fprintln(tw, strings.Join(row, "\t")+"\t")
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		for _, note := range t.Notes {
			fmt.Fprintln(w, note)
		}
	}
	return nil
}

// Markdown writes tables for a document.
func Markdown(w io.Writer, tables []Table) error {
	var b strings.Builder
	for i, t := range tables {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s\n\n", t.Title)
		writeRow(&b, t.Columns)
		b.WriteString("| --- |" + strings.Repeat(" ---: |", len(t.Columns)-1) + "\n")
		for _, row := range t.Rows {
			writeRow(&b, row)
		}
		for _, note := range t.Notes {
			fmt.Fprintf(&b, "\n%s\n", note)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeRow(b *strings.Builder, cells []string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}

// CSV writes tables, separated by empty lines, without titles and notes.
func CSV(w io.Writer, tables []Table) error {
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		c := csv.NewWriter(w)
		if err := c.WriteAll(append([][]string{t.Columns}, t.Rows...)); err != nil {
			return err
		}
	}
	return nil
}
