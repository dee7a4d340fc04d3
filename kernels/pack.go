package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// A tile is the part of a weight that one tensor-core instruction multiplies: the M operand of
// mma.m16n8k16.
const (
	tileRows = 16
	tileCols = 16
)

// Pack reorders a quantised weight into the layout [Codes], and others into the layout Fragments:
// [ceil(rows/16)][cols/16][32 lanes][8 elements] of 16 bits. Lane l of a tile holds rows l/4 and
// l/4+8, and of both the columns 4*(l%4) to 4*(l%4)+3, as {row, columns 0 1}, {row+8, 0 1},
// {row, 2 3}, {row+8, 2 3}. Rows past the last are zero. F32 is rounded to BF16, to nearest even.
type Pack struct {
	Src        device.Buffer // [Rows][Cols] of DType
	Dst        device.Buffer // out: packed, as the packed format of DType
	DType      DType
	Rows, Cols int
}

// Kernel returns "pack".
func (Pack) Kernel() string { return "pack" }

// packed returns the weight in Dst.
func (o Pack) packed() Weight {
	w := Weight{Data: o.Dst, DType: formats[o.DType].packed, Layout: Fragments, Rows: o.Rows, Cols: o.Cols}
	if o.DType.Quantised() {
		w.Layout = Codes
	}
	return w
}

// PackedBytes returns the size of a matrix of format t on a GPU.
func PackedBytes(t DType, rows, cols int) int64 {
	return Pack{DType: t, Rows: rows, Cols: cols}.packed().bytes()
}

// gpuLimit is a [device.ErrBadShape] of a model that a GPU has no kernels for. Its text is for users.
type gpuLimit string

func (l gpuLimit) Error() string { return string(l) }

// Is reports whether target is [device.ErrBadShape].
func (gpuLimit) Is(target error) bool { return target == device.ErrBadShape }

// CheckPackable returns [device.ErrBadShape] for a shape of a matrix of format t that a GPU has no kernels for.
func CheckPackable(t DType, rows, cols int) error {
	if rows <= 0 || cols <= 0 || cols%max(tileCols, formats[t].blockElements) != 0 {
		return gpuLimit(fmt.Sprintf("weight [%d][%d] on a GPU: columns must be a multiple of %d", rows, cols,
			max(tileCols, formats[t].blockElements)))
	}
	return nil
}

// CheckTogether returns [device.ErrBadShape] for formats of weights that a GPU cannot multiply in one op. All weights
// of 16 bits must have one type, with no quantised weight beside them. Quantised weights may differ in format if each
// has outputs of its own (QKV), and may not if an output combines two of them (combined, as in GateUp).
func CheckTogether(combined bool, all ...DType) error {
	for _, t := range all {
		same := formats[t].packed == formats[all[0]].packed
		if !same && (combined || !t.Quantised() || !all[0].Quantised()) {
			return gpuLimit("a GPU multiplies these weights together, and has no kernels for their mixture of formats")
		}
	}
	return nil
}

// CheckPacked returns [device.ErrBadShape] for a model's dimensions that the ops do not support
// on a GPU.
func CheckPacked(headDim, hidden, inner int) error {
	const mostHeadDim = mostLatent // of attention's kernels
	for _, d := range []struct {
		name    string
		n, step int
	}{{"head_dim", headDim, 2 * tileRows}, {"hidden_size", hidden, tileCols}, {"intermediate_size", inner, tileCols}} {
		if d.n%d.step != 0 {
			return gpuLimit(fmt.Sprintf("%s %d on a GPU: it must be a multiple of %d; --device host serves any",
				d.name, d.n, d.step))
		}
	}
	if headDim > mostHeadDim {
		return gpuLimit(fmt.Sprintf("head_dim %d on a GPU: at most %d; --device host serves any", headDim, mostHeadDim))
	}
	return nil
}

// CheckPages returns [device.ErrBadShape] for pages of keys and values in which a GPU's kernels cannot count places: of
// layers of which one does not divide the largest.
func CheckPages(l KVLayers) error {
	if most, divided := l.most(); !divided {
		return gpuLimit(fmt.Sprintf("layers that differ in their keys and values on a GPU: each must divide the largest, "+
			"of %d elements a token; --device host serves any", most))
	}
	return nil
}

// CheckLatent returns [device.ErrBadShape] for dimensions of latent attention that the ops do not support on a GPU:
// heads of queries with nope elements beside those that RoPE rotates, values of value elements, and latents of rank; the
// latent of queries has queryRank, or none.
func CheckLatent(heads, nope, rope, value, rank, queryRank int) error {
	for _, d := range []struct {
		name          string
		n, step, most int
	}{{"qk_nope_head_dim", nope, tileCols, 0}, {"v_head_dim", value, tileRows, 0},
		{"kv_lora_rank", rank, tileRows, mostLatent}, {"kv_lora_rank + qk_rope_head_dim", rank + rope, 2 * tileRows,
			mostLatentKey}, {"q_lora_rank", queryRank, 2 * tileRows, 0},
		{"heads of qk_nope_head_dim + qk_rope_head_dim", heads * (nope + rope), 2 * tileRows, 0}} {
		if d.n%d.step != 0 || d.most > 0 && d.n > d.most {
			most := ""
			if d.most > 0 {
				most = fmt.Sprintf(" of at most %d", d.most)
			}
			return gpuLimit(fmt.Sprintf("%s %d on a GPU: it must be a multiple of %d%s; --device host serves any",
				d.name, d.n, d.step, most))
		}
	}
	return nil
}

// mostLatent and mostLatentKey bound a latent, and a latent with the elements that RoPE rotates, on a GPU.
const mostLatent, mostLatentKey = 512, 576

// Check compares dimensions.
func (o Pack) Check() error {
	if err := CheckPackable(o.DType, o.Rows, o.Cols); err != nil {
		return err
	}
	source := Weight{Data: o.Src, DType: o.DType, Rows: o.Rows, Cols: o.Cols}
	if err := source.check("to pack", o.Rows, o.Cols); err != nil {
		return err
	}
	return o.packed().check("packed", o.Rows, o.Cols)
}

// Host packs on the host.
func (o Pack) Host(h *device.Host) {
	if o.DType.Quantised() {
		o.hostCodes(h)
		return
	}
	out, pack := h.Uint16(o.Dst), formats[o.DType].pack
	source := Weight{Data: o.Src, DType: o.DType, Rows: o.Rows, Cols: o.Cols}
	for i := range out {
		step := i / (tileRows * tileCols)
		lane, e := i/8%32, i%8
		row := step/(o.Cols/tileCols)*tileRows + lane/4 + e/2%2*8
		col := step%(o.Cols/tileCols)*tileCols + lane%4*4 + e/4*2 + e%2
		out[i] = 0
		if row < o.Rows {
			out[i] = pack(source.row(h, row), col)
		}
	}
}

func (o Pack) hostCodes(h *device.Host) {
	b, out := &bricks[o.DType], h.Bytes(o.Dst)
	clear(out)
	source := Weight{Data: o.Src, DType: o.DType, Rows: o.Rows, Cols: o.Cols}
	for first := 0; first < o.Rows; first += tileRows {
		var rows [][]byte
		for r := first; r < min(first+tileRows, o.Rows); r++ {
			rows = append(rows, source.row(h, r))
		}
		b.pack(out[first/tileRows*b.count(o.Cols)*b.bytes():], rows, o.Cols, &formats[o.DType])
	}
}
