package measure

import (
	"math"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// cost returns the least work of one launch of op: the bytes that it must read and write
// once, and its floating-point operations, two for a multiply-add. It leaves out the
// activations, which are small beside the weights and stay in a cache.
func cost(op device.Op, p pass) (bytes, flops int64) {
	switch o := op.(type) {
	case kernels.Embed:
		return 2 * 4 * int64(o.T) * int64(o.Table.Cols), 0
	case kernels.QKV:
		return products(o.T, o.Q, o.K, o.V)
	case kernels.LatentQKV:
		return products(o.T, o.QueryDown, o.Q, o.C)
	case kernels.HeadProduct:
		return products(o.T, o.W)
	case kernels.Projection:
		return products(rowsOf(o.T, o.RowIndex, p), o.W)
	case kernels.Exchange: // what a rank gives to the others
		return 4 * int64(o.T) * int64(o.PartCols) * int64(o.Ranks-1), 0
	case kernels.GateUp:
		return products(rowsOf(o.T, o.RowIndex, p), o.Gate, o.Up)
	case kernels.Experts:
		for _, one := range []device.Op{o.Route, o.GateUp, o.Down} {
			b, f := cost(one, p)
			bytes, flops = bytes+b, flops+f
		}
		return bytes, flops
	case kernels.Route:
		return o.Router.Bytes(), 2 * int64(rowsOf(o.T, o.RowIndex, p)) * int64(o.Chosen.Experts) * int64(o.Hidden)
	case kernels.ExpertGateUp:
		return experts(rowsOf(o.T, o.RowIndex, p), o.Chosen, o.Gate, o.Up)
	case kernels.ExpertDown:
		return experts(rowsOf(o.T, o.RowIndex, p), o.Chosen, o.Down)
	case kernels.GatherRows:
		return 2 * 4 * int64(p.sequences()) * int64(o.Cols), 0
	case kernels.AddNorm:
		return 3 * 4 * int64(rowsOf(o.T, o.RowIndex, p)) * int64(o.Cols), 0
	case kernels.PerLayerGate:
		return 3 * 4 * int64(rowsOf(o.T, o.RowIndex, p)) * int64(o.Cols), 0
	case kernels.Head:
		return products(p.sequences(), o.W)
	case kernels.Vector:
		return 2 * 4 * int64(p.sequences()) * int64(o.Cols), 0
	case kernels.Attend:
		return attention(o, p)
	case kernels.Sample:
		return 4 * int64(p.sequences()) * int64(o.Vocab), 0
	}
	return 0, 0 // stage moves a descriptor
}

// rowsOf returns how many of T rows an op computes: only the sampled rows if it has a
// list of row indices.
func rowsOf(T int, list device.Buffer, p pass) int {
	if list.Bytes() > 0 {
		return p.sequences()
	}
	return T
}

// products returns the cost of multiplying T rows by weights.
func products(T int, weights ...kernels.Weight) (bytes, flops int64) {
	for _, w := range weights {
		bytes += w.Data.Bytes()
		flops += 2 * int64(T) * int64(w.Rows) * int64(w.Cols)
	}
	return bytes, flops
}

// experts returns the cost of multiplying T rows by the experts that they choose, if each chooses as if at random: then
// they choose a share of 1 - (1 - Used/Experts)^T of them.
func experts(T int, c kernels.Chosen, weights ...kernels.Weight) (bytes, flops int64) {
	used := float64(c.Used) / float64(c.Experts)
	bytes, flops = products(T, weights...)
	return int64(float64(bytes) * (1 - math.Pow(1-used, float64(T)))), int64(float64(flops) * used)
}

// attention returns the cost of reading the keys and values of each sequence once, and of
// attending from each row to the rows before it.
func attention(o kernels.Attend, p pass) (bytes, flops int64) {
	positions, pairs := int64(o.T)*int64(p.context), int64(o.T)*int64(p.context)
	if p.phase == "prefill" {
		last := int64(o.T % p.context) // rows of a prompt that is shorter
		positions = int64(o.T)
		pairs = int64(o.T/p.context)*triangle(int64(p.context)) + triangle(last)
	}
	keys, values := int64(o.KV.HeadDim), int64(o.KV.HeadDim)
	bytes = positions * int64(o.KV.Heads) * o.KV.DType.Size()
	if o.KV.Values > 0 { // they are part of the keys
		values = int64(o.KV.Values)
		return bytes * keys, 2 * pairs * int64(o.Heads) * (keys + values)
	}
	return bytes * (keys + values), 2 * pairs * int64(o.Heads) * (keys + values)
}

// triangle returns 1 + … + n.
func triangle(n int64) int64 { return n * (n + 1) / 2 }
