package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// quantisedTensors is a checkpoint whose quantised matrices are tensors under their published names.
type quantisedTensors struct {
	file  Tensors
	made  map[string]weights.Tensor // by published name
	parts map[string]bool           // names of the file that are not tensors of the config
}

// Published returns the tensors of a checkpoint under their published names. A matrix that the checkpoint holds as
// codes and scales becomes one tensor with a [weights.Conversion]. Errors: ErrTensor, weights.ErrMissing,
// weights.ErrQuantised, weights.ErrActOrder and weights.ErrChanged.
func (c Config) Published(file Tensors) (Tensors, error) {
	switch c.Quantisation.Method {
	case "":
		if err := c.refuseCodes(file); err != nil {
			return file, err
		}
	case methodMXFP4: // of experts alone
	default:
		q := quantisedTensors{file: file, made: map[string]weights.Tensor{}, parts: map[string]bool{}}
		if err := weights.Guard(func() error { return q.convertAll(c) }); err != nil {
			return q, err
		}
		file = q
	}
	stacked := file
	err := weights.Guard(func() (err error) { stacked, err = c.stacked(file); return err })
	return stacked, err
}

// convertAll makes the matrices that are not floats, and names their parts.
func (q quantisedTensors) convertAll(c Config) error {
	for _, s := range c.publishedTensors() {
		if len(s.Shape) != 2 || q.isFloat(s.Name) {
			continue
		}
		t, err := q.convert(c.Quantisation, s)
		if err != nil {
			return fmt.Errorf("model: %s, quantised by %s: %w", s.Name, c.Quantisation.Method, err)
		}
		if t.Conversion != nil {
			q.made[s.Name] = t
		}
	}
	q.addParts(c)
	return nil
}

// refuseCodes returns ErrTensor if a checkpoint has codes and its config does not say so. Old tools wrote that to
// another file alone.
func (c Config) refuseCodes(file Tensors) error {
	for _, name := range file.Names() {
		if strings.HasSuffix(name, partCodes) || strings.HasSuffix(name, partPacked) {
			t, _ := file.Tensor(name)
			return fmt.Errorf("%w: %s: %.80q is quantised, and config.json has no quantization_config: put the content of "+
				"quantize_config.json there under this name, with \"quant_method\": \"gptq\" or the like, or download a "+
				"newer checkpoint", ErrTensor, t.File, name)
		}
	}
	return nil
}

// isFloat reports whether a tensor is not quantised.
func (q quantisedTensors) isFloat(name string) bool {
	t, err := q.file.Tensor(name)
	return err == nil && dtypes[t.DType] != 0
}

// Names of a linear layer's tensors, after the layer's name. Those of inputs, outputs and the KV cache belong to the
// quantisation of activations, which is not done.
const (
	partWeight = ".weight"

	partScale        = ".weight_scale"
	partScaleInverse = ".weight_scale_inv" // multiplies, in spite of its name
	partPacked       = ".weight_packed"
	partShape        = ".weight_shape"
	partZeroPoint    = ".weight_zero_point"
	partGroupIndex   = ".weight_g_idx"

	partCodes  = ".qweight"
	partZeros  = ".qzeros"
	partScales = ".scales"
	partOrder  = ".g_idx"
)

var activationParts = []string{".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point",
	".activation_scale", ".activation_scale_inv"}

// cacheParts follow the name of an attention.
var cacheParts = []string{".k_scale", ".v_scale", ".q_scale", ".k_zero_point", ".v_zero_point"}

// convert returns a matrix made of the tensors of a linear layer; the zero Tensor if the checkpoint has none of them.
func (q quantisedTensors) convert(c Quantisation, s TensorSpec) (weights.Tensor, error) {
	layer, rows, cols := strings.TrimSuffix(s.Name, partWeight), s.Shape[0], s.Shape[1]
	switch {
	case q.has(layer + partCodes):
		return q.fourBits(c, layer, rows, cols)
	case q.has(layer + partPacked):
		return q.packed(c, layer, rows, cols)
	case q.has(s.Name):
		return q.float8(c, layer)
	}
	return weights.Tensor{}, nil
}

// checkCodes compares the shape of codes with the config's, before memory is taken for their columns.
func checkCodes(codes weights.Tensor, shape ...int) error {
	if !slices.Equal(codes.Shape, shape) {
		return fmt.Errorf("%w: %s: %.80q has the shape %v, the config asks for %v", ErrTensor, codes.File, codes.Name,
			codes.Shape, shape)
	}
	return nil
}

func (q quantisedTensors) has(name string) bool {
	_, err := q.file.Tensor(name)
	return err == nil
}

// optional returns a tensor, or the zero Tensor.
func (q quantisedTensors) optional(name string) weights.Tensor {
	t, _ := q.file.Tensor(name)
	return t
}

// float8 returns a matrix of float8. Its codes are there.
func (q quantisedTensors) float8(c Quantisation, layer string) (weights.Tensor, error) {
	scale := layer + partScale
	if c.Method == methodFloat8 {
		scale = layer + partScaleInverse
	}
	scales, err := q.file.Tensor(scale)
	if err != nil {
		return weights.Tensor{}, err
	}
	if zero := layer + partZeroPoint; q.has(zero) && !q.zeros(zero) {
		return weights.Tensor{}, fmt.Errorf("%w: %.80q is not 0: take the model in BF16", weights.ErrQuantised, zero)
	}
	return weights.Float8(q.optional(layer+partWeight), scales, c.Side)
}

// packed returns a matrix that compressed-tensors packed.
func (q quantisedTensors) packed(c Quantisation, layer string, rows, cols int) (weights.Tensor, error) {
	codes := q.optional(layer + partPacked)
	scales, err := q.file.Tensor(layer + partScale)
	if err != nil {
		return weights.Tensor{}, err
	}
	if codes.DType == weights.U8 {
		return weights.Microscaling4(codes, scales)
	}
	if err := checkCodes(codes, rows, cols/8); err != nil {
		return weights.Tensor{}, err
	}
	t, err := weights.Int4{Layout: weights.Int4Rows, Codes: codes, Scales: scales, Zeros: q.optional(layer + partZeroPoint),
		Order: q.optional(layer + partGroupIndex), Shape: q.optional(layer + partShape)}.Tensor()
	return t, errors.Join(err, c.checkGroup(t, scales, 1))
}

// fourBits returns a matrix of AWQ or GPTQ. Its codes are there.
func (q quantisedTensors) fourBits(c Quantisation, layer string, rows, cols int) (t weights.Tensor, err error) {
	i := weights.Int4{Layout: weights.Int4Interleaved, Codes: q.optional(layer + partCodes),
		ZerosLessOne: c.ZerosLessOne, Symmetric: c.Symmetric}
	shape := []int{cols, rows / 8}
	if c.Method == methodGPTQ {
		i.Layout, i.Order, shape = weights.Int4Columns, q.optional(layer+partOrder), []int{cols / 8, rows}
	}
	if err := checkCodes(i.Codes, shape...); err != nil {
		return t, err
	}
	if i.Scales, err = q.file.Tensor(layer + partScales); err != nil {
		return t, err
	}
	if i.Zeros, err = q.file.Tensor(layer + partZeros); err != nil {
		return t, err
	}
	if t, err = i.Tensor(); err != nil {
		return t, err
	}
	return t, c.checkGroup(t, i.Scales, 0)
}

// checkGroup compares the config's size of a group with a matrix. Dimension d of its scales is the number of groups.
func (c Quantisation) checkGroup(t, scales weights.Tensor, d int) error {
	if t.Conversion == nil || c.Group == 0 {
		return nil
	}
	size := c.Group
	if size == -1 {
		size = t.Shape[1]
	}
	if want := (t.Shape[1] + size - 1) / size; scales.Shape[d] != want {
		return fmt.Errorf("%w: %s: %.80q has %d groups, and group_size %d of config.json makes %d of %d columns: "+
			"take both files from one checkpoint", ErrTensor, scales.File, scales.Name, scales.Shape[d], c.Group, want,
			t.Shape[1])
	}
	return nil
}

// addParts names the tensors that belong to converted matrices or to activations. It reads biases of zeros, which
// some tools add to each layer.
func (q quantisedTensors) addParts(c Config) {
	wanted := map[string]bool{}
	for _, s := range c.publishedTensors() {
		wanted[s.Name] = true
		if attention, ok := strings.CutSuffix(s.Name, ".o_proj"+partWeight); ok { // also of floats
			for _, part := range cacheParts {
				q.parts[attention+part] = true
			}
		}
	}
	for name := range q.made {
		layer := strings.TrimSuffix(name, partWeight)
		for _, part := range slices.Concat(activationParts, []string{partWeight, partScale, partScaleInverse, partPacked,
			partShape, partZeroPoint, partGroupIndex, partCodes, partZeros, partScales, partOrder}) {
			q.parts[layer+part] = true
		}
		if bias := layer + ".bias"; !wanted[bias] && q.zeros(bias) {
			q.parts[bias] = true
		}
	}
}

// zeros reports whether a tensor is there and holds zeros alone.
func (q quantisedTensors) zeros(name string) bool {
	t, err := q.file.Tensor(name)
	return err == nil && !slices.ContainsFunc(t.Data, func(b byte) bool { return b != 0 })
}

// Tensor returns a tensor by its published name.
func (q quantisedTensors) Tensor(name string) (weights.Tensor, error) {
	if t, ok := q.made[name]; ok {
		t.Name = name
		return t, nil
	}
	return q.file.Tensor(name)
}

// Names returns the published names of all tensors.
func (q quantisedTensors) Names() (names []string) {
	for name := range q.made {
		names = append(names, name)
	}
	for _, name := range q.file.Names() {
		if !q.parts[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Ordered returns the name of a matrix whose columns are in another order, which only a host serves; "": there is none.
func (c Config) Ordered(tensors Tensors) string {
	for _, s := range c.Tensors() {
		if t, err := tensors.Tensor(s.Name); err == nil && t.Conversion != nil && t.Conversion.Order != nil {
			return s.Name
		}
	}
	return ""
}

// Converted returns the bytes of the matrices that [Load] converts on a host, and of the tensors that they come from.
func (c Config) Converted(tensors Tensors) (made, sources int64) {
	for _, s := range c.Tensors() {
		if t, err := tensors.Tensor(s.Name); err == nil && t.Conversion != nil {
			made += int64(t.Shape[0] * t.DType.Bytes(t.Shape[1]))
			sources += t.SourceBytes()
		}
	}
	return made, sources
}
