package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// The experts of a layer are stacked: one weight has the rows of all of them, expert after expert. A block of a GPU
// finds its tile by the expert's id, which it reads on the device.

// ExpertGateUp is the first half of the experts' feed-forward: with n = rmsnorm(X[t]) and e = Chosen.IDs[t][k],
// Out[t][k] = Activation(Gate_e·n) ⊙ Up_e·n, as in [GateUp]. With a Limit it is gpt-oss's: with a the gate of at most Limit and
// b the up of at most Limit and at least -Limit, a·σ(1.702·a)·(b+1).
// (OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025; transformers, modeling_gpt_oss.py.)
type ExpertGateUp struct {
	X                device.Buffer // float32 [T][hidden]; with RowIndex at least T rows, and all that it names
	RowIndex         device.Buffer // as in [GateUp]
	Norm             device.Buffer // float32 [hidden]
	Gate, Up         Weight        // [Experts*inner][hidden]
	GateBias, UpBias device.Buffer // float32 [Experts][inner], or none
	Chosen           Chosen
	Out              device.Buffer // out: float32 [T][Used][inner]
	Workspace        ExpertWorkspace
	Activation       Activation
	Limit            float32 // 0: none
	Eps              float32
	T                int
	Class            Class
	// Spread is the exchange of the results, T*Used rows of inner columns, between ranks; or none.
	Spread Exchange
	// HandsOver leaves the results rounded in Workspace.Gated, not in Out, where the kernels of a prompt can. The same
	// Workspace, T and Class are those of the down projection, whose InputIsRounded is set (ExpertsHandOver).
	HandsOver bool
}

// ExpertDown is the second half: X[t] += Σ_k Chosen.Weights[t][k]·(Down_e·In[t][k] + Bias_e), e = Chosen.IDs[t][k]. The
// results of a row's experts are added in the order of k, and then to X.
type ExpertDown struct {
	Down      Weight        // [Experts*hidden][inner]
	Bias      device.Buffer // float32 [Experts][hidden], or none
	In        device.Buffer // float32 [T][Used][inner]
	X         device.Buffer // in and out: float32 [T][hidden]
	RowIndex  device.Buffer // int32 [T]: -1 for rows that are not computed, which come last; or none
	Chosen    Chosen
	Workspace ExpertWorkspace
	T         int
	Class     Class
	Store     bool // X holds nothing before
	// Spread is the exchange of X between ranks, or none; with Store and an X of its own. The op's X may then be left as
	// it is.
	Spread Exchange
	before Exchange // that of In, if this op takes it
	// InputIsRounded: the gates left In rounded in Workspace.Gated, where the kernels of a prompt can.
	InputIsRounded bool
}

// gemvShared is the dynamic shared memory, in bytes, that kernels of one row may use on every GPU.
const gemvShared = 94 << 10

// sharedOfOne returns the dynamic shared memory of the kernel of one row over weights of 16 bits, or 0 if it does not
// fit: the rounded results of its experts' gates, and partial sums.
func (o ExpertDown) sharedOfOne() int {
	const partials = 4 * 16 * tileRows
	if shared := o.Chosen.Used * (2*o.Down.Cols + partials); shared <= gemvShared {
		return shared
	}
	return 0
}

// TakeFrom makes the down projection take what the gates of other ranks send as it comes, where GPUs have kernels for
// that: of one row, in memory that GPUs address.
func (o *ExpertDown) TakeFrom(gates *ExpertGateUp) {
	s := gates.Spread
	if s.Signals.Inbox != device.PeerInbox || s.All != o.In || !s.fits() || !o.Spread.fits() ||
		gates.T != 1 || o.T != 1 || gates.Class != Decode || o.Class != Decode ||
		!arePacked(gates.Gate, gates.Up, o.Down) || 8*gates.Gate.Cols > gemvShared ||
		gates.inner()%tileRows != 0 || o.hidden()%tileRows != 0 || o.sharedOfOne() == 0 {
		return
	}
	gates.Spread.taken, o.before = true, s
	o.before.taken = true
}

// ExpertWorkspace is device memory that the experts' kernels need; the host uses none of it. Ops that run one after
// another may share it.
type ExpertWorkspace struct {
	Results device.Buffer // float32 [T][Used][hidden]: of each expert, times its weight
	// Rounded and Gated are [ExpertsRoundedBytes] bytes, or none: a prompt's rows of hidden columns and of an expert's
	// width, rounded and by expert. The prefill class has its own order of sums with them, on Hopper.
	Rounded, Gated device.Buffer
}

// Kernel returns "expert gateup".
func (ExpertGateUp) Kernel() string { return "expert gateup" }

// Kernel returns "expert down".
func (ExpertDown) Kernel() string { return "expert down" }

// inner returns the width of an expert.
func (o ExpertGateUp) inner() int { return o.Gate.Rows / o.Chosen.Experts }

// hidden returns the width of the residual stream.
func (o ExpertDown) hidden() int { return o.Down.Rows / o.Chosen.Experts }

// Check compares dimensions.
func (o ExpertGateUp) Check() error {
	if err := errors.Join(o.Chosen.check(o.T), checkStack(o.Gate, o.Chosen)); err != nil {
		return err
	}
	hidden, places := o.Gate.Cols, o.T*o.Chosen.Used
	err := errors.Join(o.Spread.checkSpread(o.Out, places, o.inner()), o.Gate.check("gate", o.Gate.Rows, hidden),
		o.Up.check("up", o.Gate.Rows, hidden), checkRowIndex(o.RowIndex, o.T, o.Class),
		checkBuffers(need{"x", o.X, o.T * hidden}, need{"norm", o.Norm, hidden}, need{"out", o.Out, places * o.inner()}))
	for _, b := range []device.Buffer{o.GateBias, o.UpBias} {
		if !b.IsZero() {
			err = errors.Join(err, checkBuffers(need{"bias of experts", b, o.Gate.Rows}))
		}
	}
	return err
}

// Check compares dimensions.
func (o ExpertDown) Check() error {
	if err := errors.Join(o.Chosen.check(o.T), checkStack(o.Down, o.Chosen)); err != nil {
		return err
	}
	if !o.Spread.IsZero() && (!o.Store || o.Spread.X.IsZero()) {
		return fmt.Errorf("%w: an exchange of sums that experts are not added to", device.ErrBadShape)
	}
	err := errors.Join(o.Spread.checkSpread(o.X, o.T, o.hidden()), o.Down.check("down", o.Down.Rows, o.Down.Cols),
		checkRowIndex(o.RowIndex, o.T, o.Class),
		checkBuffers(need{"in", o.In, o.T * o.Chosen.Used * o.Down.Cols}, need{"x", o.X, o.T * o.hidden()}))
	if !o.Bias.IsZero() {
		err = errors.Join(err, checkBuffers(need{"bias of experts", o.Bias, o.Down.Rows}))
	}
	return err
}

// checkStack refuses a weight that is not equal parts, and one in activation order.
func checkStack(w Weight, c Chosen) error {
	if w.Rows%c.Experts != 0 || !w.Order.IsZero() {
		return fmt.Errorf("%w: %d rows of %d experts, in order: %v", device.ErrBadShape, w.Rows, c.Experts,
			w.Order.IsZero())
	}
	return nil
}

// Host computes on the host, expert after expert, for all rows that chose it.
func (o ExpertGateUp) Host(h *device.Host) {
	inner, hidden, used := o.inner(), o.Gate.Cols, o.Chosen.Used
	x, T := h.Float32(o.X), o.T
	if o.RowIndex.Bytes() > 0 {
		x, T = gatherRows(h, o.RowIndex, x, o.T, hidden)
		defer h.Return(x)
	}
	n := normRows(h, x, h.Float32(o.Norm)[:hidden], o.Eps, T)
	in, gate, up := h.Scratch(T*hidden), h.Scratch(T*inner), h.Scratch(T*inner)
	ids, out := h.Int32(o.Chosen.IDs)[:T*used], h.Float32(o.Out)
	for e := range o.Chosen.Experts {
		rows := 0
		for p, id := range ids {
			if int(id) == e {
				copy(in[rows*hidden:(rows+1)*hidden], n[p/used*hidden:])
				rows++
			}
		}
		if rows == 0 {
			continue
		}
		taken, done := inputs(h, in, rows, o.Gate, o.Up)
		h.For(inner, 2*inner*hidden*rows, func(begin, end int) {
			o.expert(h, e, begin, end, taken, gate, up)
		})
		done()
		rows = 0
		for p, id := range ids {
			if int(id) == e {
				copy(out[p*inner:(p+1)*inner], gate[rows*inner:])
				rows++
			}
		}
	}
	for _, s := range [][]float32{up, gate, in, n} {
		h.Return(s)
	}
	o.Spread.spread(h)
}

// expert computes results begin to end of expert e for the inputs of gate and up, and leaves them in gate.
func (o ExpertGateUp) expert(h *device.Host, e, begin, end int, in []input, gate, up []float32) {
	inner := o.inner()
	rowsProduct(h, o.Gate.part(e, inner), begin, end, in[0], sums{gate, inner, false})
	rowsProduct(h, o.Up.part(e, inner), begin, end, in[1], sums{up, inner, false})
	for t := range in[0].rows {
		a, b := gate[t*inner+begin:t*inner+end], up[t*inner+begin:t*inner+end]
		addBias(h, a, o.GateBias, e*inner+begin)
		addBias(h, b, o.UpBias, e*inner+begin)
		o.gated(a, b)
	}
}

// addBias adds the elements of a bias from first on to x, if there is a bias.
func addBias(h *device.Host, x []float32, bias device.Buffer, first int) {
	if bias.IsZero() {
		return
	}
	for i, b := range h.Float32(bias)[first:][:len(x)] {
		x[i] += b
	}
}

// clampedSlope is that of gpt-oss's sigmoid.
const clampedSlope = 1.702

// gated replaces a by its activation times b, or with a limit by gpt-oss's product; that overwrites b.
func (o ExpertGateUp) gated(a, b []float32) {
	limit := o.Limit
	if limit == 0 {
		o.Activation.gate(a, b)
		return
	}
	for i := range a {
		a[i], b[i] = min(a[i], limit), max(min(b[i], limit), -limit)+1
	}
	vec.Gate(a, b, clampedSlope, 0)
}

// part returns part e of a row-major weight, of rows rows.
func (w Weight) part(e, rows int) Weight {
	n := int64(rows) * w.DType.Bytes(int64(w.Cols))
	w.Data, w.Rows = w.Data.Slice(int64(e)*n, n), rows
	return w
}

// Host computes on the host, expert after expert, and adds the results of a row by rank.
func (o ExpertDown) Host(h *device.Host) {
	hidden, inner, used := o.hidden(), o.Down.Cols, o.Chosen.Used
	T := o.T
	if o.RowIndex.Bytes() > 0 {
		T = liveRows(h.Int32(o.RowIndex)[:T])
	}
	in, sum, results := h.Scratch(T*inner), h.Scratch(T*hidden), h.Scratch(T*used*hidden)
	ids, from, x := h.Int32(o.Chosen.IDs)[:T*used], h.Float32(o.In), h.Float32(o.X)
	for e := range o.Chosen.Experts {
		rows := 0
		for p, id := range ids {
			if int(id) == e {
				copy(in[rows*inner:(rows+1)*inner], from[p*inner:])
				rows++
			}
		}
		if rows == 0 {
			continue
		}
		product(h, o.Down.part(e, hidden), in, rows, sum, hidden, false)
		rows = 0
		for p, id := range ids {
			if int(id) == e {
				o.weigh(h, results[p*hidden:(p+1)*hidden], sum[rows*hidden:], e, h.Float32(o.Chosen.Weights)[p])
				rows++
			}
		}
	}
	if o.Store {
		clear(x[:o.T*hidden])
	}
	for t := range T {
		addRanks(x[t*hidden:(t+1)*hidden], results[t*used*hidden:(t+1)*used*hidden])
	}
	for _, s := range [][]float32{results, sum, in} {
		h.Return(s)
	}
	o.Spread.spread(h)
}

// weigh writes weight·(sum + Bias_e).
func (o ExpertDown) weigh(h *device.Host, result, sum []float32, e int, weight float32) {
	var bias []float32
	if !o.Bias.IsZero() {
		bias = h.Float32(o.Bias)[e*len(result):]
	}
	for i := range result {
		y := sum[i]
		if bias != nil {
			y += bias[i]
		}
		result[i] = weight * y
	}
}

// addRanks adds the sum of the results of a row's experts, in the order of their ranks, to x.
func addRanks(x, results []float32) {
	for i := range x {
		var sum float32
		for at := i; at < len(results); at += len(x) {
			sum += results[at]
		}
		x[i] += sum
	}
}

// liveRows returns the number of entries of a row index before its padding.
func liveRows(index []int32) (n int) {
	for n < len(index) && index[n] >= 0 {
		n++
	}
	return n
}
