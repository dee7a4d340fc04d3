package model

import (
	"fmt"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Latent is multi-head latent attention: a page holds a latent of each token in the place of keys and values of heads,
// and the part of the key that RoPE rotates, which all heads share. Config.HeadDim is Nope + Rope then, and KVHeads
// says nothing. (DeepSeek-V2, 2024; see [kernels.LatentQKV].)
type Latent struct {
	Rank      int // elements of a latent: kv_lora_rank
	QueryRank int `json:",omitempty"` // elements of the latent that queries are made of: q_lora_rank; 0: they have none
	Rope      int // elements of a head that RoPE rotates: qk_rope_head_dim
	Nope      int // elements that it does not rotate: qk_nope_head_dim
	Value     int // elements of a head's value: v_head_dim
	// Apart: the checkpoint has the matrices of kv_b_proj apart, that of keys transposed by head, as GGUF has them.
	Apart bool `json:",omitempty"`
}

// latentEps is the Eps of norms of latents. (transformers, modeling_deepseek_v2.py, modeling_deepseek_v3.py.)
const latentEps = 1e-6

// check refuses numbers that are out of bounds.
func (l *Latent) check(c Config) error {
	if l == nil {
		return nil
	}
	for _, d := range []struct {
		field    string
		n, least int
	}{{"kv_lora_rank", l.Rank, 1}, {"q_lora_rank", l.QueryRank, 0}, {"qk_rope_head_dim", l.Rope, 2},
		{"qk_nope_head_dim", l.Nope, 1}, {"v_head_dim", l.Value, 1}} {
		if d.n < d.least || d.n > maxHeadDim*4 {
			return outside(d.field, d.n, d.least, maxHeadDim*4)
		}
	}
	if most := max(l.Rank+l.Rope, l.Nope+l.Rope, l.Nope+l.Value); most*c.Heads > maxDimension {
		return fmt.Errorf("model: %d heads of %d elements have %d together, wants at most %d", c.Heads, most,
			most*c.Heads, maxDimension)
	}
	return nil
}

// kv returns what a page holds of a layer.
func (l *Latent) kv() kernels.LayerKV {
	return kernels.LayerKV{Heads: 1, HeadDim: l.Rank + l.Rope, Values: l.Rank}
}

// queryDim returns the elements of a query head as attention takes it.
func (c Config) queryDim() int {
	if c.Latent != nil {
		return c.Latent.Rank + c.Latent.Rope
	}
	return c.HeadDim
}

// queryRank returns Latent.QueryRank; 0: there is none.
func (c Config) queryRank() int {
	if c.Latent == nil {
		return 0
	}
	return c.Latent.QueryRank
}

// attendedWidth returns the elements of a row that the output projection takes.
func (c Config) attendedWidth() int {
	if c.Latent != nil {
		return c.Heads * c.Latent.Value
	}
	return c.Heads * c.HeadDim
}

// Names of a layer's tensors of latent attention, after the layer's prefix.
const (
	queryDownProj = "self_attn.q_a_proj.weight"
	queryDownNorm = "self_attn.q_a_layernorm.weight"
	queryUpProj   = "self_attn.q_b_proj.weight"
	latentProj    = "self_attn.kv_a_proj_with_mqa.weight" // to the latent, then to the part that RoPE rotates
	latentNorm    = "self_attn.kv_a_layernorm.weight"
	headsProj     = "self_attn.kv_b_proj.weight" // of each head Nope rows that make a key of the latent, and Value
	absorbProj    = "self_attn.k_b_proj.weight"  // [Heads*Rank][Nope]: the first of these, transposed
	expandProj    = "self_attn.v_b_proj.weight"  // [Heads*Value][Rank]: the second
)

// latent adds the tensors of latent attention up to its output projection.
func (s *specs) latent() {
	c, l := s.c, s.c.Latent
	if q := c.Heads * c.HeadDim; l.QueryRank > 0 {
		s.add(AttentionTensor, queryDownProj, l.QueryRank, c.Hidden)
		s.add(NormTensor, queryDownNorm, l.QueryRank)
		s.add(AttentionTensor, queryUpProj, q, l.QueryRank)
	} else {
		s.add(AttentionTensor, qProj, q, c.Hidden)
	}
	s.add(AttentionTensor, latentProj, l.Rank+l.Rope, c.Hidden)
	s.add(NormTensor, latentNorm, l.Rank)
	if l.Apart {
		s.add(AttentionTensor, absorbProj, c.Heads*l.Rank, l.Nope)
		s.list[len(s.list)-1].Unpacked = true
		s.add(AttentionTensor, expandProj, c.Heads*l.Value, l.Rank)
		s.list[len(s.list)-1].Unpacked = true
		return
	}
	s.add(AttentionTensor, headsProj, c.Heads*(l.Nope+l.Value), l.Rank)
	heads := &s.list[len(s.list)-1]
	heads.parts, heads.Unpacked = []int{c.Heads * l.Nope, c.Heads * l.Value}, true
}

// latentWeights is what latent attention has in the place of k and v.
type latentWeights struct {
	down          kernels.Weight // [Rank+Rope][hidden]
	norm          device.Buffer  // float32 [Rank]
	absorb        kernels.Weight // [Heads*Rank][Nope]: of a head's query to the latents
	expand        kernels.Weight // [Heads*Value][Rank]: of a sum of latents to the head's value
	queryDown     kernels.Weight // [QueryRank][hidden], or none
	queryDownNorm device.Buffer  // float32 [QueryRank], or none
}

// matrices returns the matrices that a step reads.
func (w *latentWeights) matrices() []kernels.Weight {
	return []kernels.Weight{w.down, w.absorb, w.expand, w.queryDown}
}

// tailOrder returns the order of kept rows that stay and of the rows after them, which RoPE rotates; nil: all stay.
func (c Config) tailOrder(kept int) []int {
	if !c.Interleaved {
		return nil
	}
	order := make([]int, kept+c.Latent.Rope)
	for i := range order {
		order[i] = i
	}
	for j, half := 0, c.Latent.Rope/2; j < half; j++ {
		order[kept+j], order[kept+half+j] = kept+2*j, kept+2*j+1
	}
	return order
}

// latent loads the tensors of a layer's attention up to its output projection.
func (l *loader) latent(w *layer, c Config, prefix string) {
	m, name := c.Latent, qProj
	if m.QueryRank > 0 {
		name = queryUpProj
		w.latent.queryDown, w.latent.queryDownNorm = l.matrix(prefix+queryDownProj), l.vector(prefix+queryDownNorm)
	}
	w.q = l.inOrder(l.tensor(prefix+name), 0, c.Heads*c.HeadDim, c.tailOrder(m.Nope))
	w.latent.down = l.inOrder(l.tensor(prefix+latentProj), 0, m.Rank+m.Rope, c.tailOrder(m.Rank))
	w.latent.norm = l.vector(prefix + latentNorm)
	if m.Apart {
		w.latent.absorb, w.latent.expand = l.unpacked(l.tensor(prefix+absorbProj)), l.unpacked(l.tensor(prefix+expandProj))
		return
	}
	l.headMatrices(&w.latent, c, l.tensor(prefix+headsProj))
}

// headMatrices loads kv_b_proj as two matrices of each head. The first is transposed, which no format of blocks allows:
// values of quantised ones become float32, which a GPU rounds to bfloat16.
func (l *loader) headMatrices(w *latentWeights, c Config, t weights.Tensor) {
	if l.err != nil {
		return
	}
	m := c.Latent
	values := plain(t, c.Heads*(m.Rank+m.Value))
	size, each := values.dtype.Size(), m.Nope+m.Value
	w.absorb = l.made(values, c.Heads*m.Rank, m.Nope, func(dst, data []byte, first int) {
		for r := first; len(dst) > 0; r++ {
			head, column := r/m.Rank, r%m.Rank
			for i := range m.Nope {
				copy(dst[i*size:][:size], data[((head*each+i)*m.Rank+column)*size:])
			}
			dst = dst[m.Nope*size:]
		}
	})
	row := m.Rank * size
	w.expand = l.made(values, c.Heads*m.Value, m.Rank, func(dst, data []byte, first int) {
		for r := first; len(dst) > 0; r++ {
			copy(dst[:row], data[(r/m.Value*each+m.Nope+r%m.Value)*row:])
			dst = dst[row:]
		}
	})
	if !l.dev.Capabilities().PacksWeights {
		t.Drop()
	}
}

// unpacked loads a matrix as floats.
func (l *loader) unpacked(t weights.Tensor) (w kernels.Weight) {
	if l.err != nil {
		return w
	}
	if t.Conversion == nil && !t.DType.Quantised() {
		return l.rows(t, 0, t.Shape[0])
	}
	values := plain(t, t.Shape[0])
	row := t.Shape[1] * values.dtype.Size()
	return l.made(values, t.Shape[0], t.Shape[1], func(dst, data []byte, first int) { copy(dst, data[first*row:]) })
}

// made loads a matrix of values, whose rows fill writes to dst, as many as it holds, from row first on.
func (l *loader) made(v *plainValues, rows, cols int, fill func(dst, data []byte, first int)) (w kernels.Weight) {
	if l.err == nil {
		row := cols * v.dtype.Size()
		w, l.err = l.weights.Convert(dtypes[v.dtype], rows, cols, func(dst []byte, first int) error {
			return weights.Guard(func() error { return v.use(len(dst)/row, func(data []byte) { fill(dst, data, first) }) })
		})
		l.loadedWeight(w)
	}
	return w
}
