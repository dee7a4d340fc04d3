package model

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// Names of an EAGLE-3 head's tensors that a layer does not have.
const (
	featuresName  = "fc.weight"
	tokensName    = "d2t" // int64: token of the model less the head's own
	knownName     = "t2d" // bool: whether the head has a token of the model
	allNormName   = "input_norm.weight"
	hiddenNorm    = "hidden_norm.weight" // after the layer's prefix
	verifierNames = "verifier_"          // before the names of copies of the model's tensors
)

// partNormName is the name of the norm of a part of the features.
func partNormName(part int) string { return fmt.Sprintf("fc_norm.%d.weight", part) }

// eagleTensors lists the tensors of an EAGLE-3 head, under the names of a model's where there are such.
func (c Config) eagleTensors() (list []TensorSpec) {
	e := c.Eagle
	if e.Embedding {
		list = append(list, TensorSpec{Name: embeddingName, Kind: EmbeddingTensor, Shape: []int{e.Vocab, c.Hidden}})
	}
	prefix := layerPrefix(0)
	for _, s := range c.layerTensors(0) {
		if slices.Contains([]string{prefix + qProj, prefix + kProj, prefix + vProj}, s.Name) {
			s.Shape[1] *= 2
		}
		list = append(list, s)
	}
	add := func(kind TensorKind, name string, shape ...int) {
		list = append(list, TensorSpec{Name: name, Kind: kind, Shape: shape})
	}
	add(NormTensor, prefix+hiddenNorm, c.Hidden)
	if e.FeaturesNorm {
		add(NormTensor, allNormName, e.parts()*e.Target)
	}
	for part := range e.parts() {
		if e.PartNorms {
			add(NormTensor, partNormName(part), e.Target)
		}
	}
	add(FeedForwardTensor, featuresName, c.Hidden, e.parts()*e.Target)
	add(NormTensor, normName, c.Hidden)
	add(HeadTensor, headName, c.Vocab, c.Hidden)
	if e.Mapped {
		add(NormTensor, tokensName, c.Vocab)
	}
	return list
}

// eagleNames are the tensors of an EAGLE-3 head under the names of [Config.Tensors].
type eagleNames struct {
	file  Tensors
	names map[string]string // in the file
}

// EagleTensors returns the config of an EAGLE-3 head that knows which of the tensors there may be are there, and its
// tensors under the names of a model's. Two tensors of one meaning are [ErrTensor].
func (c Config) EagleTensors(file Tensors) (Config, Tensors, error) {
	named, e := eagleNames{file, map[string]string{}}, *c.Eagle
	for _, name := range file.Names() {
		ours := eagleName(name)
		if other, twice := named.names[ours]; twice {
			return c, nil, fmt.Errorf("%w: %.80q and %.80q are the same tensor of an EAGLE-3 head", ErrTensor, name,
				other)
		}
		if !strings.HasPrefix(ours, verifierNames) {
			named.names[ours] = name
		}
	}
	_, e.Embedding = named.names[embeddingName]
	_, e.Mapped = named.names[tokensName]
	c.Eagle = &e
	return c, named, nil
}

// eagleName returns the name of [Config.Tensors] for one of SafeAILab or of speculators.
func eagleName(name string) string {
	name = strings.TrimPrefix(name, "model.")
	for _, layer := range []string{"midlayer.", "layers.0."} {
		if rest, ok := strings.CutPrefix(name, layer); ok {
			return layerPrefix(0) + rest
		}
	}
	if name == "norm.weight" || name == "embed_tokens.weight" {
		return "model." + name
	}
	return name
}

// Tensor returns a tensor by its name of Config.Tensors.
func (n eagleNames) Tensor(name string) (weights.Tensor, error) {
	if in, ok := n.names[name]; ok {
		return n.file.Tensor(in)
	}
	return n.file.Tensor(name)
}

// Names lists the tensors by their names of Config.Tensors.
func (n eagleNames) Names() (all []string) {
	for name := range n.names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// checkTokens checks d2t: it leads each token of the head to another one of the model, and where t2d says which ones
// the head has, to one of them.
func (c Config) checkTokens(tensors Tensors) error {
	tokens, err := c.tokens(tensors)
	if err != nil {
		return err
	}
	t, err := tensors.Tensor(knownName)
	known := err == nil && slices.Contains(t.Data, 1) // some heads have zeros there
	bytes := t.DType == weights.BOOL || t.DType == weights.U8
	if err == nil && (!bytes || !slices.Equal(t.Shape, []int{c.Eagle.Vocab})) {
		return fmt.Errorf("%w: %s: %s is %v of the shape %v, wants BOOL of [%d]", ErrTensor, t.File, knownName, t.DType,
			t.Shape, c.Eagle.Vocab)
	}
	if seen := make([]bool, c.Eagle.Vocab); c.Eagle.Mapped {
		for id, token := range tokens {
			if seen[token] || known && t.Data[token] == 0 {
				return fmt.Errorf("%w: %s leads the head's token %d to the model's %d, which is another's or which "+
					"t2d does not have: d2t must hold differences of ids", ErrTensor, tokensName, id, token)
			}
			seen[token] = true
		}
	}
	return nil
}

// tokens returns the model's token of each of the head's.
func (c Config) tokens(tensors Tensors) ([]int32, error) {
	tokens := make([]int32, c.Vocab)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	if !c.Eagle.Mapped {
		return tokens, nil
	}
	t, err := tensors.Tensor(tokensName)
	if err != nil {
		return nil, err
	}
	for i := range tokens {
		var by int64
		if t.DType == weights.I64 {
			by = int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
		} else {
			by = int64(int32(binary.LittleEndian.Uint32(t.Data[4*i:])))
		}
		if by < -int64(i) || by >= int64(c.Eagle.Vocab-i) {
			return nil, fmt.Errorf("%w: %s: %s leads token %d to %d, outside of the model's %d tokens", ErrTensor,
				t.File, tokensName, i, int64(i)+by, c.Eagle.Vocab)
		}
		tokens[i] += int32(by)
	}
	return tokens, nil
}
