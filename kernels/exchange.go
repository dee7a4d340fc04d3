package kernels

import (
	"errors"
	"fmt"
	"sync/atomic"

	"reel.internal/reel/kernels/device"
)

// Exchange gives every rank of a device the columns that each has computed: All[t] is Part[t] of rank 0, then of rank 1
// and so on. The parts of the last ranks may begin within those before, as [PartStart] has it. With X it then adds them:
// X[t] = (X[t] + Bias) + All[t]. Each column is computed by one rank, in the order of sums of one GPU, so the results
// have the same bits for any number of ranks.
//
// A rank writes its part into the memory of the others, raises a flag there for each, and waits for theirs. Few elements
// go as packets instead, each with the number of the exchange beside it, and nobody waits for a fence; so do all where
// ranks do not address each other's memory and packets go through that of the host. The number
// of the exchange is counted on the device, so a captured launch is right whenever it is replayed. With X, All may be left
// as it is. All may be the
// destination of a later exchange if there is another exchange between the last reading of its content and that one:
// a rank that has reached it has read the content, and no other rank goes on before.
type Exchange struct {
	Part device.Buffer // float32 [T][PartCols]
	All  device.Buffer // out: float32 [T][Width]
	X    device.Buffer // in and out: float32 [T][Width], or none
	Bias device.Buffer // float32 [Width], or none; with X
	// Rounded is where the op before hands its part over, on GPUs on which it does: then these rows are exchanged, with
	// their sums of squares if Squares says so, and neither Part nor All nor X. Such ops of a pass change only their
	// own part of X, as [Complete] wants it. Or none.
	Rounded device.Buffer
	Squares bool
	// Signals is that of the device. One stream makes all exchanges of a device.
	Signals device.Signals

	T, Width, PartCols, Ranks int

	taken   bool // GPUs leave it to the next op to take what others send, and do not store that in All
	inPlace bool // the part is this rank's columns of All
}

// partUnit is what a part is a multiple of: the rows of a tile, so that a GPU packs a part as it packs the whole.
const partUnit = tileRows

// PartOf returns how many of width columns, or rows of a weight, each of so many ranks computes.
func PartOf(width, ranks int) int {
	return min(width, (splitsOf(width, ranks)+partUnit-1)/partUnit*partUnit)
}

// PartStart returns the first column of a rank's part. Parts of the last ranks may begin within those before, so that
// all have one size.
func PartStart(width, ranks, rank int) int {
	part := PartOf(width, ranks)
	return min(rank*part, width-part)
}

// own returns the columns that a rank gives to all, those of its part that no rank before it has, and where its part
// begins.
func (o Exchange) own(rank int) (begin, end, start int) {
	return min(rank*o.PartCols, o.Width), min((rank+1)*o.PartCols, o.Width), min(rank*o.PartCols, o.Width-o.PartCols)
}

// mostPackets is the most elements of an exchange that go as packets where flags could be raised: packets are twice as
// long as what they carry.
const mostPackets = 1 << 17

// fits reports whether the exchange can go as packets, at most [mostPackets].
func (o Exchange) fits() bool { return o.isOfPairs() && o.T*o.Width <= mostPackets }

// isOfPairs reports whether packets can carry the exchange: in pairs, and from every rank some, since a rank knows by them
// that the others have read what they got before.
func (o Exchange) isOfPairs() bool {
	return o.Signals.Inbox != device.NoInbox && o.Width%2 == 0 && o.PartCols%2 == 0 && (o.Ranks-1)*o.PartCols < o.Width
}

// mostTakers is the most blocks of a product that takes its row: one on each SM, whose registers hold what they take
// beside weights.
const mostTakers = 131

// TakenBy returns the exchange as one whose results a projection by w takes as they come, where GPUs have a kernel for
// that: of one row, in memory that they address. The projection is the next op, and the one before sends ([Attend.Sends],
// [GateUp.Sends]).
func (o Exchange) TakenBy(w Weight) Exchange {
	o.taken = o.T == 1 && o.Signals.Inbox == device.PeerInbox && o.fits() && o.X.IsZero() &&
		arePacked(w) && w.Cols == o.Width && 4*w.Cols <= gemvShared &&
		tilesOf(w.Rows) <= mostTakers && w.Order.IsZero()
	return o
}

// IsZero reports whether there is no exchange.
func (o Exchange) IsZero() bool { return o.Ranks == 0 }

// spread runs the exchange after an op whose results it gives to all ranks.
func (o Exchange) spread(h *device.Host) {
	if !o.IsZero() {
		o.Host(h)
	}
}

// checkSpread checks the exchange after an op that leaves so many columns in a buffer, or none.
func (o Exchange) checkSpread(results device.Buffer, rows, cols int) error {
	switch {
	case o.IsZero():
		return nil
	case o.Part != results || o.T != rows || o.PartCols != cols:
		return fmt.Errorf("%w: an exchange of %d rows of %d columns after an op with %d of %d", device.ErrBadShape, o.T,
			o.PartCols, rows, cols)
	}
	return o.Check()
}

// Kernel returns "exchange".
func (Exchange) Kernel() string { return "exchange" }

// Check compares dimensions.
func (o Exchange) Check() error {
	if o.Ranks < 2 || o.Ranks > device.MaxRanks || o.PartCols < 1 || o.PartCols > o.Width ||
		o.Ranks*o.PartCols < o.Width {
		return fmt.Errorf("%w: an exchange of %d columns between %d ranks of %d", device.ErrBadShape, o.Width, o.Ranks,
			o.PartCols)
	}
	return errors.Join(checkBuffers(need{"part", o.Part, o.T * o.PartCols}, need{"all", o.All, o.T * o.Width},
		need{"flags", o.Signals.Flags, device.MaxRanks * device.SignalBlocks},
		need{"epochs", o.Signals.Epochs, device.SignalBlocks},
		need{"progress", o.Signals.Progress, device.MaxRanks * device.ProgressWords}),
		checkOptional(need{"x", o.X, o.T * o.Width}, need{"bias", o.Bias, o.Width}))
}

// Host writes to all peers, waits for them, and adds.
func (o Exchange) Host(h *device.Host) {
	epochs := h.Uint32(o.Signals.Epochs)
	epoch := epochs[0] + 1
	epochs[0] = epoch
	atomic.StoreUint32(&h.Uint32(o.Signals.Progress)[h.Rank()*device.ProgressWords], epoch)
	for _, peer := range h.Peers() {
		o.give(h, peer, epoch)
	}
	h.Signal()
	flags := h.Uint32(o.Signals.Flags)
	arrived := h.Await(func() bool {
		for rank := range o.Ranks {
			if int32(atomic.LoadUint32(&flags[rank*device.SignalBlocks])-epoch) < 0 {
				return false
			}
		}
		return true
	})
	if arrived && !o.X.IsZero() {
		o.add(h)
	}
}

// give writes h's columns into a peer's memory and raises its flag there.
func (o Exchange) give(h, peer *device.Host, epoch uint32) {
	begin, end, start := o.own(h.Rank())
	part, all := h.Float32(o.Part)[begin-start:], peer.Float32(o.All)
	fault := h.ExchangeFault()
	if fault == device.StalePeer && peer != h {
		all = make([]float32, len(all))
	}
	for t := range o.T {
		copy(all[t*o.Width+begin:t*o.Width+end], part[t*o.PartCols:])
	}
	if peer != h && fault == device.MissingFlag {
		return
	}
	if peer != h && fault == device.WrongEpoch {
		epoch /= 2
	}
	atomic.StoreUint32(&peer.Uint32(o.Signals.Flags)[h.Rank()*device.SignalBlocks], epoch)
}

// add adds what has arrived to the residual stream.
func (o Exchange) add(h *device.Host) {
	x, all := h.Float32(o.X), h.Float32(o.All)
	var bias []float32
	if !o.Bias.IsZero() {
		bias = h.Float32(o.Bias)
	}
	for t := range o.T {
		row := x[t*o.Width : (t+1)*o.Width]
		for i, v := range all[t*o.Width:][:o.Width] {
			if bias != nil {
				row[i] += bias[i]
			}
			row[i] += v
		}
	}
}

// Complete gives every rank the columns of X that each has computed: a prefill pass of GPUs that hand rounded rows over
// leaves each with a part of the residual stream. Parts are of one size. On other devices X is complete already.
type Complete struct {
	X       device.Buffer // in and out: float32 [T][Width]
	Signals device.Signals

	T, Width, Ranks int
}

// Kernel returns "exchange".
func (Complete) Kernel() string { return "exchange" }

// exchange returns the exchange of X in place.
func (o Complete) exchange() Exchange {
	return Exchange{Part: o.X, All: o.X, Signals: o.Signals, T: o.T, Width: o.Width, PartCols: o.Width / max(1, o.Ranks),
		Ranks: o.Ranks, inPlace: true}
}

// Check compares dimensions.
func (o Complete) Check() error {
	if o.Ranks < 2 || o.Width%o.Ranks != 0 {
		return fmt.Errorf("%w: %d columns of %d ranks", device.ErrBadShape, o.Width, o.Ranks)
	}
	return o.exchange().Check()
}

// Host does nothing.
func (o Complete) Host(*device.Host) {}
