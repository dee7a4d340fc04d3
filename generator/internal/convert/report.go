package convert

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"reel.internal/reel/generator/internal/model"
)

// Report says what a conversion wrote.
type Report struct {
	Source, Written int64 // bytes of all tensors, and of the file
	Elements        int64
	Classes         []Class // in the order of the file
}

// Class is the tensors of one kind.
type Class struct {
	Kind            model.TensorKind
	Formats         string
	Source, Written int64
	// Error is the root of the sum of squared errors over the sum of squared elements, both over the class.
	Error float64
}

// report adds the sums of each class.
func (p *plan) report(job Job, all []sums) Report {
	r := Report{Written: p.size, Elements: job.Config.Parameters()}
	total := map[model.TensorKind]*sums{}
	for i, part := range p.parts() {
		kind := p.tensors[part.tensor].kind
		if total[kind] == nil {
			total[kind] = &sums{}
		}
		total[kind].square += all[i].square
		total[kind].error += all[i].error
	}
	for _, t := range p.tensors {
		r.Source += t.source()
		if !slices.ContainsFunc(r.Classes, func(c Class) bool { return c.Kind == t.kind }) {
			r.Classes = append(r.Classes, p.class(t.kind, *total[t.kind]))
		}
	}
	return r
}

// source returns the bytes of the tensor's elements in the checkpoint, which may have it in parts.
func (t planned) source() int64 { return int64(t.DType.Bytes(t.Shape[0] * columns(t.Shape))) }

// class describes the tensors of a kind.
func (p *plan) class(kind model.TensorKind, s sums) Class {
	c, formats := Class{Kind: kind}, map[string]bool{}
	for _, t := range p.tensors {
		if t.kind == kind {
			c.Source += t.source()
			c.Written += int64(t.to.Bytes(t.Shape[0] * columns(t.Shape)))
			formats[t.to.String()] = true
		}
	}
	c.Formats = strings.Join(slices.Sorted(maps.Keys(formats)), ", ")
	if s.square > 0 {
		c.Error = math.Sqrt(s.error / s.square)
	}
	return c
}

// Print writes a table.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "tensors\tformats\tsource\twritten\terror")
	for _, c := range r.Classes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Kind, c.Formats, bytesText(c.Source), bytesText(c.Written),
			errorText(c.Error))
	}
	fmt.Fprintf(t, "all\t%.2f bits a weight\t%s\t%s\t\n", 8*float64(r.Written)/float64(r.Elements),
		bytesText(r.Source), bytesText(r.Written))
	return t.Flush()
}

func errorText(e float64) string {
	if e == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3f %%", 100*e)
}

// bytesText returns a size as in 397 MiB.
func bytesText(n int64) string { return humanize.IBytesN(uint64(n), 4) }
