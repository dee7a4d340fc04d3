package model

import (
	"slices"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// place says which row of a tensor a rank has as its i-th.
type place func(rank, i int) int

// part loads the rows that each rank computes of a matrix, or of n rows of it from first on.
func (l *loader) part(t weights.Tensor, first, n int) kernels.Weight {
	c := l.model.Config
	if c.ranks() == 1 {
		return l.rows(t, first, n)
	}
	return l.divided(t, c.part(n), func(rank, i int) int { return first + kernels.PartStart(n, c.ranks(), rank) + i })
}

// partOf is part of a whole tensor.
func (l *loader) partOf(name string) kernels.Weight {
	t := l.tensor(name)
	if l.err != nil {
		return kernels.Weight{}
	}
	return l.part(t, 0, t.Shape[0])
}

// stack loads each rank's rows of the experts of a layer, of which each has n.
func (l *loader) stack(name string, n int) kernels.Weight {
	c := l.model.Config
	if c.ranks() == 1 {
		return l.matrix(name)
	}
	return l.divided(l.tensor(name), c.Experts.Count*c.part(n), c.placeInStack(n))
}

// placeInStack returns the places of the experts' rows, n of each expert.
func (c Config) placeInStack(n int) place {
	rows := c.part(n)
	return func(rank, i int) int { return i/rows*n + kernels.PartStart(n, c.ranks(), rank) + i%rows }
}

// placeOfHeads returns the places of the rows of heads: head says which one a rank has as its i-th.
func (c Config) placeOfHeads(first int, head func(rank, i int) int) place {
	d := c.HeadDim
	return func(rank, i int) int { return first + head(rank, i/d)*d + i%d }
}

// heads are those of a tensor from a row on.
type heads struct {
	of   weights.Tensor
	from int
}

// attention loads each rank's heads of q, which begin its tensor, and of k and v, if the layer has such. c is that of the
// layer.
func (l *loader) attention(w *layer, c Config, q weights.Tensor, k, v *heads) {
	if c.ranks() == 1 {
		w.q = l.heads(q, 0, c.Heads*c.HeadDim)
		if k != nil {
			w.k = l.heads(k.of, k.from, c.KVHeads*c.HeadDim)
		}
		if v != nil {
			w.v = l.rows(v.of, v.from, c.KVHeads*c.HeadDim)
		}
		return
	}
	w.q = l.divided(q, c.heads()*c.HeadDim, c.inHeadOrder(c.placeOfHeads(0, c.queryHead)))
	if kvHeads := c.kvHeads() * c.HeadDim; k != nil {
		w.k = l.divided(k.of, kvHeads, c.inHeadOrder(c.placeOfHeads(k.from, c.kvHead)))
		if v != nil {
			w.v = l.divided(v.of, kvHeads, c.placeOfHeads(v.from, c.kvHead))
		}
	}
}

// inHeadOrder returns at for heads of q or k, whose rows a device has in the order of RoPE by halves.
func (c Config) inHeadOrder(at place) place {
	order := c.headOrder()
	if order == nil {
		return at
	}
	d := len(order)
	return func(rank, i int) int { return at(rank, i/d*d) + order[i%d] }
}

// divided loads n rows of a matrix for each rank.
func (l *loader) divided(t weights.Tensor, n int, at place) (w kernels.Weight) {
	if l.err != nil {
		return w
	}
	ranks, size := l.model.Config.ranks(), t.DType.Bytes(t.Shape[1])
	if t.Conversion == nil && inOrder(ranks, n, at) {
		data := make([][]byte, ranks)
		for rank := range data {
			data[rank] = t.Data[at(rank, 0)*size:][:n*size]
		}
		w, l.err = l.weights.WeightEach(dtypes[t.DType], n, t.Shape[1], data)
	} else {
		sources := make([]kernels.RowSource, ranks)
		for rank := range sources {
			sources[rank] = rowSource(t, func(i int) int { return at(rank, i) })
		}
		w, l.err = l.weights.ConvertEach(dtypes[t.DType], n, t.Shape[1], sources)
	}
	l.loadedWeight(w)
	return l.inColumnOrder(w, t)
}

// inOrder reports whether the rows of each rank follow one another in the tensor.
func inOrder(ranks, n int, at place) bool {
	for rank := range ranks {
		for i := 1; i < n; i++ {
			if at(rank, i) != at(rank, i-1)+1 {
				return false
			}
		}
	}
	return true
}

// rowSource returns the source of rows that at finds in t.
func rowSource(t weights.Tensor, at func(i int) int) kernels.RowSource {
	size := t.DType.Bytes(t.Shape[1])
	return func(dst []byte, first int) (err error) {
		for rows := len(dst) / size; rows > 0 && err == nil; {
			n := 1
			for n < rows && at(first+n) == at(first)+n {
				n++
			}
			if t.Conversion != nil {
				err = t.Conversion.Rows(dst[:n*size], at(first))
			} else {
				err = device.CopyMapped(dst[:n*size], t.Data[at(first)*size:][:n*size])
			}
			dst, first, rows = dst[n*size:], first+n, rows-n
		}
		return err
	}
}

// vectorPart loads the n elements of a vector that each rank has.
func (l *loader) vectorPart(v []float32, n int, at place) (b device.Buffer) {
	ranks := l.model.Config.ranks()
	if l.err != nil || ranks == 1 {
		return l.floats(v)
	}
	each := make([][]float32, ranks)
	for rank := range each {
		for i := range n {
			each[rank] = append(each[rank], v[at(rank, i)])
		}
	}
	b, l.err = kernels.LoadVectors(l.dev, each)
	l.loaded(b, int64(n))
	return b
}

// stackVector loads each rank's part of the biases of experts, n of each expert.
func (l *loader) stackVector(name string, n int) device.Buffer {
	c := l.model.Config
	return l.vectorPart(toFloat32(l.tensor(name)), c.Experts.Count*c.part(n), c.placeInStack(n))
}

// head loads the head, of which each rank has some rows. It may be the embedding.
func (l *loader) head(c Config) kernels.Weight {
	switch {
	case !c.TiedHead:
		return l.partOf(headName)
	case c.ranks() == 1 || c.Embedding != nil:
		return l.model.embedding
	}
	return l.partOf(embeddingName)
}

// biases loads the biases of q, k and v.
func (l *loader) biases(prefix string) device.Buffer {
	c := l.model.Config
	q, k := toFloat32(l.tensor(prefix+qBias)), toFloat32(l.tensor(prefix+kBias))
	if order := c.headOrder(); order != nil {
		q, k = ordered(q, 1, order), ordered(k, 1, order)
	}
	all := slices.Concat(q, k, toFloat32(l.tensor(prefix+vBias)))
	heads, kvHeads := c.heads()*c.HeadDim, c.kvHeads()*c.HeadDim
	ofQ := c.placeOfHeads(0, c.queryHead)
	ofK, ofV := c.placeOfHeads(len(q), c.kvHead), c.placeOfHeads(len(q)+len(k), c.kvHead)
	return l.vectorPart(all, heads+2*kvHeads, func(rank, i int) int {
		switch {
		case i < heads:
			return ofQ(rank, i)
		case i < heads+kvHeads:
			return ofK(rank, i-heads)
		}
		return ofV(rank, i-heads-kvHeads)
	})
}
