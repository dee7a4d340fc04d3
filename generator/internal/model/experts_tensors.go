package model

import (
	"fmt"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// A checkpoint has the experts of a layer in one of these forms; a stack is what the config asks for.
//
//	one by one     mlp.experts.E.gate_proj.weight [inner][hidden], up_proj, down_proj [hidden][inner];
//	               Mixtral: block_sparse_moe.experts.E.w1, w3, w2; Gemma 4, where quantised: experts.E.gate_proj.weight
//	stacked        mlp.experts.gate_up_proj [E][2·inner][hidden], first all of gate; down_proj [E][hidden][inner];
//	               Gemma 4: experts.gate_up_proj, down_proj
//	transposed     gpt-oss: gate_up_proj [E][hidden][2·inner], gate and up in turn; down_proj [E][inner][hidden]
//	microscaling   gpt-oss: gate_up_proj_blocks [E][2·inner][hidden/32][16], in turn, and _scales; down_proj
//	GGUF           ffn_gate_exps.weight [E][inner][hidden], ffn_up_exps, ffn_down_exps

// stackedTensors is a checkpoint whose experts are stacks under the names of [Config.Tensors].
type stackedTensors struct {
	file  Tensors
	made  map[string]weights.Tensor
	parts map[string]bool // names of the file that made tensors come from
}

// stacked returns the tensors of a checkpoint with the experts of each layer as one matrix. Errors: ErrTensor.
func (c Config) stacked(file Tensors) (Tensors, error) {
	if c.Experts == nil {
		return file, nil
	}
	s := stackedTensors{file: file, made: map[string]weights.Tensor{}, parts: map[string]bool{}}
	for i := range c.Layers {
		if !c.sparse(i) {
			continue
		}
		if err := s.layer(c, layerPrefix(i)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// layer makes the stacks of the layer whose tensors begin with prefix.
func (s stackedTensors) layer(c Config, prefix string) error {
	s.rename(prefix, routerProj, "block_sparse_moe.gate.weight", "mlp.router.weight")
	s.rename(prefix, routerBias, "mlp.router.bias")
	e := c.Experts
	for part, name := range []string{expertsGate, expertsUp, expertsDown} {
		rows, cols := e.Inner, c.Hidden
		if part == downPart {
			rows, cols = c.Hidden, e.Inner
		}
		t, err := s.matrix(c, stackSpec{prefix, part, e.Count, rows, cols})
		if err != nil {
			return err
		}
		t.Name = prefix + name
		s.made[t.Name] = t
	}
	if !e.Bias {
		return nil
	}
	return s.biases(c, prefix)
}

// rename gives a tensor the name that the config has for it, if the file has it under another.
func (s stackedTensors) rename(prefix, name string, others ...string) {
	for _, other := range others {
		if t, err := s.file.Tensor(prefix + other); err == nil {
			t.Name = prefix + name
			s.made[t.Name], s.parts[prefix+other] = t, true
		}
	}
}

// The matrices of an expert.
const (
	gatePart = iota
	upPart
	downPart
)

// stackSpec is a stack: count matrices [rows][cols].
type stackSpec struct {
	prefix            string // of the layer
	part              int
	count, rows, cols int
}

// matrix makes a stack of whatever form the file has.
func (s stackedTensors) matrix(c Config, k stackSpec) (weights.Tensor, error) {
	name := c.expertsPrefix(k.prefix) + "gate_up_proj"
	if k.part == downPart {
		name = c.expertsPrefix(k.prefix) + "down_proj"
	}
	if blocks, err := s.file.Tensor(name + "_blocks"); err == nil {
		return s.microscaling(k, name, blocks)
	}
	t, err := s.file.Tensor(name)
	if err != nil {
		return s.oneByOne(c, k)
	}
	s.parts[name] = true
	if c.Experts.Transposed {
		return k.ofTransposed(t)
	}
	return k.ofStack(t)
}

// expertName returns the name of the matrix of one expert of a layer.
func (c Config) expertName(prefix string, part, expert int) string {
	if c.Name == "mixtral" {
		return fmt.Sprintf("%sblock_sparse_moe.experts.%d.%s.weight", prefix, expert,
			[...]string{"w1", "w3", "w2"}[part])
	}
	return fmt.Sprintf("%s%d.%s.weight", c.expertsPrefix(prefix), expert,
		[...]string{"gate_proj", "up_proj", "down_proj"}[part])
}

// expertsPrefix returns what names of experts of a layer begin with.
func (c Config) expertsPrefix(layer string) string {
	if c.expertsBeside() {
		return layer + "experts."
	}
	return layer + "mlp.experts."
}

// publishedTensors lists the tensors that a checkpoint with experts one by one has.
func (c Config) publishedTensors() (list []TensorSpec) {
	for _, s := range c.Tensors() {
		if s.Kind != ExpertTensor {
			list = append(list, s)
			continue
		}
		prefix, name, _ := strings.Cut(s.Name, "mlp.")
		part := slices.Index([]string{expertsGate, expertsUp, expertsDown}, "mlp."+name)
		for e := range c.Experts.Count {
			list = append(list, TensorSpec{Name: c.expertName(prefix, part, e), Kind: s.Kind,
				Shape: []int{s.Shape[0] / c.Experts.Count, s.Shape[1]}})
		}
	}
	return list
}

// oneByOne makes a stack of a matrix for each expert.
func (s stackedTensors) oneByOne(c Config, k stackSpec) (made weights.Tensor, err error) {
	all := make([]weights.Tensor, k.count)
	for e := range all {
		name := c.expertName(k.prefix, k.part, e)
		if all[e], err = s.file.Tensor(name); err != nil {
			return made, err
		}
		s.parts[name] = true
		if err := k.fits(all[e], all[0].DType, k.rows, k.cols); err != nil {
			return made, err
		}
	}
	size := all[0].DType.Bytes(k.cols)
	return k.made(all[0].DType, all, func(dst []byte, first int) error {
		for len(dst) > 0 {
			t, row := &all[first/k.rows], first%k.rows
			n := min(len(dst)/size, k.rows-row)
			if t.Conversion != nil {
				if err := t.Conversion.Rows(dst[:n*size], row); err != nil {
					return err
				}
			} else {
				copy(dst[:n*size], t.Data[row*size:])
			}
			dst, first = dst[n*size:], first+n
		}
		return nil
	}), nil
}

// fits refuses a tensor of another type or shape, and one in activation order.
func (k stackSpec) fits(t weights.Tensor, d weights.DType, shape ...int) error {
	if t.DType != d || !slices.Equal(t.Shape, shape) || t.Conversion != nil && t.Conversion.Order != nil {
		return fmt.Errorf("%w: %s: %.80q is %v%v, the config asks for %v%v in the order of its columns", ErrTensor,
			t.File, t.Name, t.DType, t.Shape, d, shape)
	}
	return nil
}

// made returns the stack whose rows are written by rows. Its sources are tensors of the file, or made of such.
func (k stackSpec) made(d weights.DType, sources []weights.Tensor,
	rows func(dst []byte, first int) error) weights.Tensor {
	var files []weights.Tensor
	for _, t := range sources {
		if t.Conversion != nil {
			files = append(files, t.Conversion.Sources...)
		} else {
			files = append(files, t)
		}
	}
	return weights.Tensor{DType: d, Shape: []int{k.count * k.rows, k.cols}, File: sources[0].File,
		Conversion: &weights.Conversion{Sources: files, Rows: func(dst []byte, first int) error {
			return weights.Guard(func() error { return rows(dst, first) })
		}}}
}

// together returns how many of an expert's matrices are in one tensor, and the place of this one.
func (k stackSpec) together() (parts, place int) {
	if k.part == downPart {
		return 1, 0
	}
	return 2, k.part
}

// floats refuses a tensor of codes.
func (k stackSpec) floats(t weights.Tensor, shape ...int) error {
	if t.DType.Quantised() || dtypes[t.DType] == 0 {
		return fmt.Errorf("%w: %s: %.80q is %v, wants floats", ErrTensor, t.File, t.Name, t.DType)
	}
	return k.fits(t, t.DType, shape...)
}

// ofStack makes a stack of a tensor [count][rows][cols], which may stay where it is, or of one of gates and ups.
func (k stackSpec) ofStack(t weights.Tensor) (weights.Tensor, error) {
	parts, _ := k.together()
	if err := k.floats(t, k.count, parts*k.rows, k.cols); err != nil {
		return t, err
	}
	if parts == 1 {
		t.Shape = []int{k.count * k.rows, k.cols}
		return t, nil
	}
	return k.ofBoth(t), nil
}

// ofBoth makes a stack of gates or of ups of a tensor of both.
func (k stackSpec) ofBoth(t weights.Tensor) weights.Tensor {
	parts, place := k.together()
	size := t.DType.Bytes(k.cols)
	return k.made(t.DType, []weights.Tensor{t}, func(dst []byte, first int) error {
		for len(dst) > 0 {
			e, row := first/k.rows, first%k.rows
			n := min(len(dst)/size, k.rows-row)
			copy(dst[:n*size], t.Data[((e*parts+place)*k.rows+row)*size:])
			dst, first = dst[n*size:], first+n
		}
		return nil
	})
}

// ofTransposed makes a stack of a tensor [count][cols][rows], or [count][cols][2·rows] of gates and ups in turn.
func (k stackSpec) ofTransposed(t weights.Tensor) (weights.Tensor, error) {
	parts, place := k.together()
	if err := k.floats(t, k.count, k.cols, parts*k.rows); err != nil {
		return t, err
	}
	size := t.DType.Size()
	return k.made(t.DType, []weights.Tensor{t}, func(dst []byte, first int) error {
		for len(dst) > 0 {
			e, row := first/k.rows, first%k.rows
			n := min(len(dst)/(k.cols*size), k.rows-row)
			for j := range k.cols { // the rows lie beside each other
				from := t.Data[((e*k.cols+j)*k.rows+row)*parts*size:]
				for i := range n {
					copy(dst[(i*k.cols+j)*size:][:size], from[(i*parts+place)*size:])
				}
			}
			dst, first = dst[n*k.cols*size:], first+n
		}
		return nil
	}), nil
}

// microscaling makes a stack of MXFP4 of codes and exponents: [count][rows][cols/32], of gates and ups in turn.
func (s stackedTensors) microscaling(k stackSpec, name string, codes weights.Tensor) (weights.Tensor, error) {
	scales, err := s.file.Tensor(name + "_scales")
	if err != nil {
		return codes, err
	}
	parts, place := k.together()
	if err := k.fits(codes, weights.U8, k.count, parts*k.rows, k.cols/32, 16); err != nil {
		return codes, err
	}
	if err := k.fits(scales, weights.U8, k.count, parts*k.rows, k.cols/32); err != nil {
		return codes, err
	}
	s.parts[name+"_blocks"], s.parts[name+"_scales"] = true, true
	all := k.count * parts * k.rows
	codes.Shape, scales.Shape = []int{all, k.cols / 2}, []int{all, k.cols / 32}
	t, err := weights.Microscaling4(codes, scales)
	if err != nil || parts == 1 {
		return t, err
	}
	size := t.DType.Bytes(k.cols)
	return k.made(t.DType, []weights.Tensor{t}, func(dst []byte, first int) error {
		for ; len(dst) > 0; dst, first = dst[size:], first+1 {
			if err := t.Conversion.Rows(dst[:size], parts*first+place); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// biases makes the biases of gpt-oss's experts: gate_up_proj_bias [count][2·inner], of gates and ups in turn, and
// down_proj_bias [count][hidden].
func (s stackedTensors) biases(c Config, prefix string) error {
	e := c.Experts
	for part, name := range []string{gateBias, upBias, downBias} {
		k := stackSpec{prefix, part, e.Count, e.Inner, 1}
		from := prefix + "mlp.experts.gate_up_proj_bias"
		if part == downPart {
			k.rows, from = c.Hidden, prefix+"mlp.experts.down_proj_bias"
		}
		t, err := s.file.Tensor(from)
		if err != nil {
			return err
		}
		parts, place := k.together()
		if err := k.floats(t, k.count, parts*k.rows); err != nil {
			return err
		}
		s.parts[from] = true
		t.Name, t.Shape = prefix+name, []int{k.count * k.rows}
		if size := t.DType.Size(); parts > 1 {
			own := make([]byte, 0, len(t.Data)/parts)
			for at := place * size; at < len(t.Data); at += parts * size {
				own = append(own, t.Data[at:at+size]...)
			}
			t.Data = own
		}
		s.made[t.Name] = t
	}
	return nil
}

// Tensor returns a tensor by its name in the config.
func (s stackedTensors) Tensor(name string) (weights.Tensor, error) {
	if t, ok := s.made[name]; ok {
		return t, nil
	}
	return s.file.Tensor(name)
}

// Names returns the names of all tensors.
func (s stackedTensors) Names() (names []string) {
	for name := range s.made {
		names = append(names, name)
	}
	for _, name := range s.file.Names() {
		if !s.parts[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
