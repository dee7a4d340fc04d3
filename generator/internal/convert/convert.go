// Package convert writes a checkpoint of float tensors as a GGUF file with quantised matrices.
//
// Blocks, and the mixture of formats, are those of llama.cpp at commit 0c1e57098 without an importance matrix; Q8_0 and
// Q4_0 are also those of Python's package gguf. testdata/make.py makes the vectors of the tests.
package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// Errors of a conversion, beside those of the packages model and weights and of the system.
var (
	ErrTarget = errors.New("unknown format")
	ErrExists = errors.New("exists")
	ErrSource = errors.New("cannot be converted")
	ErrRange  = errors.New("out of the format's range")
)

// Job is a conversion.
type Job struct {
	Name    string // general.name
	Config  model.Config
	Tensors model.Tensors // under their published names; BF16, F16 or F32
	Pairs   []ggufmake.Pair
	Target  Target
	Out     string
	Force   bool // replace Out
	// Unchanged returns an error if the files of Tensors have changed since they were opened; nil: they cannot.
	Unchanged func() error
}

// Run writes the file job.Out, by way of job.Out.new beside it. Whatever happens, job.Out is afterwards what it was, or
// the whole new file. It uses all processors, and memory for a few rows of each. Errors: [ErrExists], [ErrSource],
// [ErrRange], model.ErrUnsupported, weights.ErrNotFinite, weights.ErrChanged, the system's, and ctx's once it has ended.
func Run(ctx context.Context, job Job) (Report, error) {
	job.Config, job.Tensors = model.Plain(job.Config, job.Tensors)
	plan, err := job.plan()
	if err != nil {
		return Report{}, err
	}
	out, err := create(job.Out, job.Force, plan.size)
	if err != nil {
		return Report{}, err
	}
	defer out.remove()
	if err := plan.begin(out.file); err != nil {
		return Report{}, out.explain(err)
	}
	if err := job.check(out.path); err != nil {
		return Report{}, err
	}
	sums, err := plan.write(ctx, out.file)
	if err != nil {
		return Report{}, out.explain(err)
	}
	if job.Unchanged != nil {
		if err := job.Unchanged(); err != nil { // the file may hold parts of both
			return Report{}, err
		}
	}
	return plan.report(job, sums), out.finish()
}

// check reads the file's headers as a generator would, and compares the config with the source's.
func (job Job) check(path string) error {
	file, err := weights.Open(oneFile(path))
	if err != nil {
		return err
	}
	defer file.Close()
	c, named, err := model.ParseGGUF(file.Metadata(), file)
	if err == nil {
		err = c.CheckTensors(named)
	}
	if err == nil {
		err = sameModel(job.Config, c)
	}
	return err
}

// plan lists what a file holds.
type plan struct {
	config  model.Config
	header  []byte
	tensors []planned
	size    int64 // bytes of the file
}

// planned is a tensor to be written.
type planned struct {
	weights.Tensor // the source, under its published name
	kind           model.TensorKind
	to             weights.DType
	at             int64 // where its data begins in the file
}

// plan checks the source and chooses the formats.
func (job Job) plan() (*plan, error) {
	if _, ok := fileTypes[job.Target]; !ok {
		return nil, fmt.Errorf("%w %.40q: give one of %s", ErrTarget, string(job.Target), Targets())
	}
	p := &plan{config: job.Config}
	var list []ggufmake.Info
	for _, d := range ggufmake.Divisors(job.Config) {
		t := weights.Tensor{Name: d.Name, DType: weights.F32, Shape: []int{len(d.Data) / 4}, Data: d.Data}
		p.tensors = append(p.tensors, planned{Tensor: t, kind: model.NormTensor, to: weights.F32})
		list = append(list, ggufmake.Info{Name: t.Name, DType: weights.F32, Shape: t.Shape})
	}
	for _, s := range job.Config.Tensors() {
		t, err := job.Tensors.Tensor(s.Name)
		if err == nil {
			err = convertible(t)
		}
		to := weights.F32
		if err == nil && s.Matrix() {
			to = job.Target.format(job.Config, s)
		}
		if err != nil {
			return nil, err
		}
		p.tensors = append(p.tensors, planned{Tensor: t, kind: s.Kind, to: to})
		list = append(list, ggufmake.Info{Name: ggufmake.Name(job.Config, s.Llama), DType: to, Shape: ggufmake.Shape(job.Config, s)})
	}
	p.header = ggufmake.Header(job.pairs(), list)
	p.size = int64(len(p.header))
	for i := range p.tensors {
		p.tensors[i].at = p.size
		p.size += ggufmake.Padded(list[i].Bytes())
	}
	return p, nil
}

// convertible refuses a tensor that is not of numbers, such as codes with scales beside them.
func convertible(t weights.Tensor) error {
	switch t.DType {
	case weights.BF16, weights.F16, weights.F32:
		return nil
	}
	return fmt.Errorf("%w: %s: %s is %v, wants BF16, F16 or F32: convert the checkpoint that it was quantised from",
		ErrSource, t.File, t.Name, t.DType)
}

// begin writes the header, and RoPE's divisors, which a reader looks at.
func (p *plan) begin(f *os.File) error {
	_, err := f.WriteAt(p.header, 0)
	for i := range ggufmake.Divisors(p.config) {
		if err == nil {
			_, err = f.WriteAt(p.tensors[i].Data, p.tensors[i].at)
		}
	}
	return err
}

// part is some rows of a tensor.
type part struct{ tensor, first, rows int }

// partElements bounds the elements of a part that has more than one row.
const partElements = 1 << 18

// parts cuts all tensors.
func (p *plan) parts() (list []part) {
	for i, t := range p.tensors {
		step := max(1, partElements/columns(t.Shape))
		for first := 0; first < t.Shape[0]; first += step {
			list = append(list, part{i, first, min(step, t.Shape[0]-first)})
		}
	}
	return list
}

// columns returns the elements of a row, which is one element of a vector.
func columns(shape []int) int {
	if len(shape) < 2 {
		return 1
	}
	return shape[1]
}

// write converts all tensors. It returns sums by part, in the order of parts.
func (p *plan) write(ctx context.Context, f *os.File) ([]sums, error) {
	list := p.parts()
	all := make([]sums, len(list))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			w := worker{plan: p, file: f}
			for i := range next {
				var err error
				if all[i], err = w.convert(list[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < len(list) && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return all, context.Cause(ctx)
}
