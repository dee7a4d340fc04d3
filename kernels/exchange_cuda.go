//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// exchangeThreads is EXCHANGE_THREADS of exchange.cu.
const exchangeThreads = 512

// flagBlocks is the most blocks that raise flags. 32 fill NVLink, and each more waits for a fence and a flag of its own:
// measured, 64 take 1 us longer.
const flagBlocks = 32

// receives is how many packets a block of a product receives.
const receives = 1 << 13

// CUDA launches the kernel of packets or that of flags. It has as many blocks on every rank, since a block waits for the
// same one of the others.
func (o Exchange) CUDA(q *cuda.Queue) error {
	switch {
	case o.rounds(q):
		return o.launchRounded(q)
	case o.fits():
		return o.launchPackets(q, 0, o.T)
	case o.Signals.Inbox == device.PinnedInbox:
		return o.launchByRows(q)
	}
	return o.launchFlags(q)
}

// launchByRows launches exchanges by packets of as many rows as fit.
func (o Exchange) launchByRows(q *cuda.Queue) error {
	each := device.InboxPackets / o.Width
	if each == 0 || !o.isOfPairs() {
		return fmt.Errorf("%w: %d columns between %d GPUs that do not address each other's memory", device.ErrBadShape,
			o.Width, o.Ranks)
	}
	for first := 0; first < o.T; first += each {
		if err := o.launchPackets(q, first, min(each, o.T-first)); err != nil {
			return err
		}
	}
	return nil
}

// launchPackets launches the exchange of some rows by packets.
func (o Exchange) launchPackets(q *cuda.Queue, first, rows int) error {
	part, stride := o.part(q)
	args := exchangePacketsArgs{part: part + uint64(4*first*stride), to: o.to(q, first, rows), stride: int32(stride)}
	g := cuda.Grid{X: min(device.SignalBlocks, splitsOf(rows*o.PartCols/2, exchangeThreads)), Threads: exchangeThreads,
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_exchange_packets", g, args)
}

// to returns where some rows of all ranks go.
func (o Exchange) to(q *cuda.Queue, first, rows int) spreadTo {
	of := func(b device.Buffer) uint64 {
		if b.IsZero() {
			return 0
		}
		return q.Address(b) + uint64(4*first*o.Width)
	}
	to := spreadTo{all: of(o.All), x: of(o.X), bias: q.Address(o.Bias), rows: int32(rows), width: int32(o.Width),
		partCols: int32(o.PartCols), taken: flag(o.taken), packets: packetsArgs{count: q.Address(o.Signals.Count),
			progress: q.Address(o.Signals.Progress), ranks: int32(o.Ranks), rank: int32(q.Rank())}}
	for peer := range o.Ranks {
		if o.Signals.Inbox == device.PinnedInbox {
			to.packets.inbox[peer] = q.Address(o.Signals.Packets) + uint64(peer*8*2*device.InboxPackets)
		} else {
			to.packets.inbox[peer] = q.PeerAddress(peer, o.Signals.Packets)
		}
	}
	return to
}

// part returns the address of this rank's part, and the floats between two of its rows.
func (o Exchange) part(q *cuda.Queue) (address uint64, stride int) {
	if o.inPlace {
		return q.Address(o.All) + uint64(4*PartStart(o.Width, o.Ranks, q.Rank())), o.Width
	}
	return q.Address(o.Part), o.PartCols
}

// CUDA launches exchanges by packets: others may still write to their X, so nothing may be written there before they
// have reached the exchange.
func (o Complete) CUDA(q *cuda.Queue) error { return o.exchange().launchByRows(q) }

// rounds reports whether the op before leaves its part rounded.
func (o Exchange) rounds(q *cuda.Queue) bool {
	return !o.Rounded.IsZero() && canRound(q, o.Rounded, o.T, o.Width)
}

// launchRounded launches the exchange of rounded rows: in packets if they are few, or GPUs do not address each other's
// memory.
func (o Exchange) launchRounded(q *cuda.Queue) error {
	r := roundedAt(0, o.T, o.Width)
	parts := roundedParts{rows: r.tokens * int32(o.PartCols) * 2, squaresAt: int32(r.scales)}
	if o.Squares {
		parts.squares = r.tokens * int32(o.PartCols) / 128 * 4
	}
	pairs := int(parts.rows+parts.squares) / 8
	if o.Signals.Inbox == device.PinnedInbox || o.Signals.Inbox == device.PeerInbox && 2*pairs*o.Ranks <= mostPackets {
		return o.launchRoundedPackets(q, parts, pairs)
	}
	args := exchangeRoundedArgs{epochs: q.Address(o.Signals.Epochs), progress: q.Address(o.Signals.Progress),
		parts: parts, ranks: int32(o.Ranks), rank: int32(q.Rank())}
	for peer := range o.Ranks {
		args.rounded[peer], args.flags[peer] = q.PeerAddress(peer, o.Rounded), q.PeerAddress(peer, o.Signals.Flags)
	}
	g := cuda.Grid{X: min(flagBlocks, splitsOf(pairs/2, exchangeThreads)), Threads: exchangeThreads,
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_exchange_rounded", g, args)
}

// launchRoundedPackets launches as many exchanges by packets as that takes.
func (o Exchange) launchRoundedPackets(q *cuda.Queue, parts roundedParts, pairs int) error {
	each := device.InboxPackets / 2 / o.Ranks
	for first := 0; first < pairs; first += each {
		n := min(each, pairs-first)
		args := roundedPacketsArgs{rounded: q.Address(o.Rounded), packets: o.to(q, 0, 0).packets, parts: parts,
			first: int32(first), pairs: int32(n)}
		g := cuda.Grid{X: min(device.SignalBlocks, splitsOf(n, exchangeThreads)), Threads: exchangeThreads,
			Dependent: tune.DependentLaunch}
		if err := cuda.Launch(q, "reel_exchange_rounded_packets", g, args); err != nil {
			return err
		}
	}
	return nil
}

// launchFlags launches the exchange by flags.
func (o Exchange) launchFlags(q *cuda.Queue) error {
	name, elements := "reel_exchange", o.T*o.PartCols/4
	if o.PartCols%4 != 0 || o.Width%4 != 0 {
		name, elements = "reel_exchange1", o.T*o.PartCols
	}
	part, stride := o.part(q)
	args := exchangeArgs{part: part, stride: int32(stride), x: q.Address(o.X), bias: q.Address(o.Bias),
		epochs: q.Address(o.Signals.Epochs), progress: q.Address(o.Signals.Progress), rows: int32(o.T),
		width: int32(o.Width), partCols: int32(o.PartCols), ranks: int32(o.Ranks), rank: int32(q.Rank())}
	for peer := range o.Ranks {
		args.all[peer], args.flags[peer] = q.PeerAddress(peer, o.All), q.PeerAddress(peer, o.Signals.Flags)
	}
	g := cuda.Grid{X: min(flagBlocks, splitsOf(elements, exchangeThreads)), Threads: exchangeThreads,
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, name, g, args)
}

// launchSpreading launches p, of the decode class, and the exchange of its results: in one kernel if there is one for p's
// shape and weights.
func launchSpreading[T any](q *cuda.Queue, p productLaunch, o Exchange, args T) error {
	v := p.fewRows()
	if o.IsZero() || p.class == Prefill || p.gathered() || anyQuantised(p.weights) || v != &gemv && v != &skinny8 ||
		!o.fits() {
		return o.after(q, launch(q, p, args))
	}
	kind, err := elementsOf(p.weights...)
	if err != nil {
		return err
	}
	g, suffix := v.grid(o.T, p.units, p.tiles), v.suffix
	if v == &gemv {
		g.Shared = p.rowBytes()
		if g.X+o.receivers() <= q.SMs() || p.before.taken {
			suffix += "_deep"
		}
	}
	return launchSpread(q, p.name+kind+suffix, g, p.maxBlocks(v, q.SMs()), o, p.before, args)
}

// receivers returns the blocks of an op's kernel that receive what others send.
func (o Exchange) receivers() int {
	if o.taken {
		return 0
	}
	return min(8, splitsOf(o.T*o.Width, receives))
}

// launchSpread launches the variant of a kernel whose results go to all ranks, with blocks beside those of its grid that
// receive, most in all. If the exchange before it is taken, the kernel takes it.
func launchSpread[T any](q *cuda.Queue, kernel string, g cuda.Grid, most int, o, before Exchange, args T) error {
	receivers := o.receivers()
	g.X = min(g.X, max(1, most-receivers)) + receivers
	a := spreadArgs[T]{op: args, to: o.to(q, 0, o.T), receivers: int32(receivers)}
	if before.taken {
		own, after, _ := before.own(q.Rank())
		a.own, a.after, a.to.packets.ahead = int32(own), int32(after), 1
	}
	return cuda.Launch(q, kernel+"_spread", g, a)
}

// launchSpreadOrThen launches a kernel of at most so many blocks and the exchange of its results, if there is one: in one
// kernel if it can go as packets. before is that of the op before if this one may take it.
func launchSpreadOrThen[T any](q *cuda.Queue, kernel string, g cuda.Grid, most int, o, before Exchange, args T) error {
	if !o.IsZero() && o.fits() {
		return launchSpread(q, kernel, g, most, o, before, args)
	}
	g.X = min(g.X, most)
	return o.after(q, cuda.Launch(q, kernel, g, args))
}

// after launches the exchange, if there is one, behind an op that has been launched with this error.
func (o Exchange) after(q *cuda.Queue, err error) error {
	if err != nil || o.IsZero() {
		return err
	}
	return o.CUDA(q)
}
