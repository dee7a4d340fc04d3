package device

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// MaxRanks bounds the ranks of a device.
const MaxRanks = 8

// ErrRanks means that the ranks of a device cannot work together: one waits for another that does not come, or a call
// reached some of them only. It comes with [ErrSticky].
var ErrRanks = errors.New("device: a rank does not keep up with the others")

// Ranks is a device of several ranks: hosts, or GPUs of one machine, that run the same ops in the same order, each
// on memory of its own. A Buffer names memory of the same size on every rank, so an op is one struct for all of them;
// what differs is the content, such as each rank's part of a weight. A stream, an event, a graph and an exec are one of
// each rank. Ops that exchange data between ranks wait for one another on the device.
//
// A call that fails on one rank after it reached another leaves them in different places. Then the device is lost.
type Ranks struct {
	ranks   []Device
	opts    RanksOptions
	signals Signals
	arrived *Mapped // of signals.Progress

	mu      sync.Mutex          // allocations are made on all ranks in the same order, so that ids agree
	buffers map[uint32][]Buffer // of each rank, by the id that they share
	lost    atomic.Pointer[error]
}

// RanksOptions configures a Ranks.
type RanksOptions struct {
	// Patience is how long a wait for an event may last while no rank reaches an exchange; then the device is lost. It
	// is counted in pieces of [waitInterval] that the caller has waited, so time in which the process is stopped does not
	// count.
	Patience time.Duration
	// Lost is called once when the device is lost; it ends waits of simulated ranks for each other. It may be nil.
	Lost func()
	// Inbox is where the packets of exchanges go. Simulated ranks send none.
	Inbox Inbox
}

// Inbox is the kind of memory through which ranks exchange packets, see [kernels.Exchange].
type Inbox uint8

// The kinds.
const (
	NoInbox     Inbox = iota // exchanges send no packets
	PeerInbox                // memory of each rank, which all others address
	PinnedInbox              // memory of the host: the ranks do not address each other's
)

// InboxPackets is the most packets of an exchange.
const InboxPackets = 1 << 19

// InboxBytes is the size of a rank's inbox: packets of two exchanges.
const InboxBytes = 8 * 2 * InboxPackets

// waitInterval is the time between two looks at all ranks while the host waits for one.
const waitInterval = 50 * time.Millisecond

// Signals is the memory by which the ranks of a device wait for one another in exchanges, see [kernels.Exchange].
type Signals struct {
	Flags  Buffer // uint32 [MaxRanks][SignalBlocks]: the last exchange of each rank whose part is here
	Epochs Buffer // uint32 [SignalBlocks]: the exchanges so far
	// Progress is uint32 [MaxRanks][ProgressWords], pinned: the first words of each are the exchanges that it reached, by
	// flags and by packets.
	Progress Buffer
	Inbox    Inbox
	Packets  Buffer // uint64 [2][InboxPackets] of each rank; of a PinnedInbox one, [ranks][2][InboxPackets]; or none
	Count    Buffer // uint32 [2]: the exchanges by packets so far, and blocks of this one that have begun it; or none
}

// SignalBlocks is the most blocks of an exchange.
const SignalBlocks = 64

// ProgressWords is the words between those of two ranks in [Signals].Progress: a cache line.
const ProgressWords = 16

// RankSet is what callers of a device of several ranks need beside [Device].
type RankSet struct {
	Count   int
	Signals Signals
	// LoadEach is Load with data for each rank, all of one size.
	LoadEach func(data [][]byte) (Buffer, error)
	// Read is [Memory].Read from the memory of one rank.
	Read func(rank int, dst []byte, b Buffer) error
	// PinnedEach is Pinned with memory of its own for each rank.
	PinnedEach func(bytes int64) (Buffer, []*Mapped, error)
}

// NewRanks makes one device of several that see each other's memory. They must be fresh: nothing is allocated on them.
func NewRanks(ranks []Device, o RanksOptions) (*Ranks, error) {
	if len(ranks) < 2 || len(ranks) > MaxRanks {
		return nil, fmt.Errorf("%w: %d ranks, wants 2 to %d", ErrBadShape, len(ranks), MaxRanks)
	}
	r := &Ranks{ranks: ranks, opts: o, buffers: map[uint32][]Buffer{}}
	var err error
	if r.signals.Flags, err = r.Alloc(4 * MaxRanks * SignalBlocks); err != nil {
		return nil, err
	}
	if r.signals.Epochs, err = r.Alloc(4 * SignalBlocks); err != nil {
		return nil, err
	}
	if r.signals.Progress, r.arrived, err = r.Pinned(4 * MaxRanks * ProgressWords); err != nil {
		return nil, err
	}
	return r, r.openInbox()
}

// openInbox allocates the inboxes of the ranks.
func (r *Ranks) openInbox() (err error) {
	s := &r.signals
	if s.Inbox = r.opts.Inbox; s.Inbox == NoInbox {
		return nil
	}
	if s.Count, err = r.Alloc(4 * 2); err != nil {
		return err
	}
	if s.Inbox == PeerInbox {
		s.Packets, err = r.Alloc(InboxBytes)
		return err
	}
	s.Packets, _, err = r.Pinned(InboxBytes * int64(len(r.ranks)))
	return err
}

// Name returns that of the ranks.
func (r *Ranks) Name() string { return r.ranks[0].Name() }

// Capabilities returns those of the ranks, with the least free memory of all.
func (r *Ranks) Capabilities() Capabilities {
	c := r.ranks[0].Capabilities()
	c.Ranks = &RankSet{Count: len(r.ranks), Signals: r.signals, LoadEach: r.loadEach, PinnedEach: r.pinnedEach,
		Read: r.readRank}
	if c.FreeMemory != nil {
		c.FreeMemory = r.freeMemory
	}
	return c
}

func (r *Ranks) freeMemory() (least int64, err error) {
	for i, d := range r.ranks {
		free, err := d.Capabilities().FreeMemory()
		if err != nil {
			return 0, r.failed(err)
		}
		if i == 0 || free < least {
			least = free
		}
	}
	return least, nil
}

// Trace calls fn for every later call on each rank.
func (r *Ranks) Trace(fn func(Call)) {
	for _, d := range r.ranks {
		d.Trace(fn)
	}
}

// Owns reports whether b is memory of this device.
func (r *Ranks) Owns(b Buffer) bool { return r.ranks[0].Owns(b) }

// Alloc allocates zeroed memory on each rank.
func (r *Ranks) Alloc(bytes int64) (Buffer, error) {
	return r.allocate(func(_ int, d Device) (Buffer, error) { return d.Alloc(bytes) })
}

// Uncleared allocates memory of undefined content on each rank.
func (r *Ranks) Uncleared(bytes int64) (Buffer, error) {
	return r.allocate(func(_ int, d Device) (Buffer, error) { return d.Uncleared(bytes) })
}

// Load allocates memory that holds data on each rank.
func (r *Ranks) Load(data []byte) (Buffer, error) {
	return r.allocate(func(_ int, d Device) (Buffer, error) { return d.Load(data) })
}

// loadEach is [RankSet].LoadEach.
func (r *Ranks) loadEach(data [][]byte) (Buffer, error) {
	if len(data) != len(r.ranks) {
		return Buffer{}, fmt.Errorf("%w: data for %d of %d ranks", ErrBadShape, len(data), len(r.ranks))
	}
	return r.allocate(func(i int, d Device) (Buffer, error) { return d.Load(data[i]) })
}

// sharing is a device that addresses pinned memory of another rank.
type sharing interface {
	// Share makes the handle of pinned memory that another device has allocated.
	Share(m *Mapped) (Buffer, error)
}

// Pinned allocates memory that the host and all ranks address: there is one of it.
func (r *Ranks) Pinned(bytes int64) (Buffer, *Mapped, error) {
	var shared *Mapped
	b, err := r.allocate(func(i int, d Device) (b Buffer, err error) {
		if i == 0 {
			b, shared, err = d.Pinned(bytes)
			return b, err
		}
		return d.(sharing).Share(shared)
	})
	return b, shared, err
}

// pinnedEach is [RankSet].PinnedEach.
func (r *Ranks) pinnedEach(bytes int64) (b Buffer, each []*Mapped, err error) {
	b, err = r.allocate(func(_ int, d Device) (Buffer, error) {
		b, m, err := d.Pinned(bytes)
		each = append(each, m)
		return b, err
	})
	return b, each, err
}

// allocate makes a buffer on each rank. Their ids agree because all ranks allocate and free in one order.
func (r *Ranks) allocate(alloc func(rank int, d Device) (Buffer, error)) (Buffer, error) {
	if err := r.lostError(); err != nil {
		return Buffer{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	each := make([]Buffer, 0, len(r.ranks))
	for i, d := range r.ranks {
		b, err := alloc(i, d)
		if err != nil {
			err = r.failed(err)
			return Buffer{}, GiveBack(func() error { return err }, func() error { return r.freeEach(each) })
		}
		each = append(each, b)
	}
	return r.record(each)
}

// record keeps the buffers of the ranks under the id that they share. The caller holds r.mu.
func (r *Ranks) record(each []Buffer) (Buffer, error) {
	for _, b := range each {
		if b.id != each[0].id || b.bytes != each[0].bytes {
			return Buffer{}, r.lose(fmt.Errorf("%w: buffer %d of %d bytes is %d of %d on another", ErrRanks, each[0].id,
				each[0].bytes, b.id, b.bytes))
		}
	}
	r.buffers[each[0].id] = each
	return each[0], nil
}

// Free frees the buffer of each rank, the last one first: shared memory ends with the first rank's.
func (r *Ranks) Free(b Buffer) error {
	if err := r.lostError(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	each, ok := r.buffers[b.id]
	if !ok || each[0] != b {
		return fmt.Errorf("%w: free of buffer %d", ErrBadBuffer, b.id)
	}
	delete(r.buffers, b.id)
	return r.freeEach(each)
}

func (r *Ranks) freeEach(each []Buffer) error {
	var releases []func() error
	for i := len(each) - 1; i >= 0; i-- {
		releases = append(releases, func() error { return r.failed(r.ranks[i].Free(each[i])) })
	}
	return GiveBack(releases...)
}

// Read copies the first rank's memory to dst.
func (r *Ranks) Read(dst []byte, b Buffer) error { return r.readRank(0, dst, b) }

// readRank is [RankSet].Read.
func (r *Ranks) readRank(rank int, dst []byte, b Buffer) error {
	if err := r.lostError(); err != nil {
		return err
	}
	return r.failed(r.ranks[rank].Read(dst, b))
}

// lostError returns the error that ended the device, or nil.
func (r *Ranks) lostError() error {
	if err := r.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// failed returns err. If it says that a rank is lost, all are.
func (r *Ranks) failed(err error) error {
	if errors.Is(err, ErrSticky) {
		return r.lose(err)
	}
	return err
}

// lose marks the device as lost and returns the error of its end.
func (r *Ranks) lose(err error) error {
	if !errors.Is(err, ErrSticky) {
		err = fmt.Errorf("%w: %w", ErrSticky, err)
	}
	if r.lost.CompareAndSwap(nil, &err) && r.opts.Lost != nil {
		r.opts.Lost()
	}
	return *r.lost.Load()
}

// all makes a call on every rank. If it fails on one after it reached another, the device is lost.
func (r *Ranks) all(call func(rank int) error) error {
	if err := r.lostError(); err != nil {
		return err
	}
	for i := range r.ranks {
		if err := call(i); err != nil {
			err = fmt.Errorf("rank %d: %w", i, err)
			if i > 0 {
				return r.lose(err)
			}
			return r.failed(err)
		}
	}
	return nil
}

// progress returns a number that rises with each exchange that a rank reaches.
func (r *Ranks) progress() (sum uint64) {
	words := mappedWords(r.arrived)
	for i := range r.ranks {
		sum += uint64(atomic.LoadUint32(&words[i*ProgressWords])) + uint64(atomic.LoadUint32(&words[i*ProgressWords+1]))
	}
	return sum
}
