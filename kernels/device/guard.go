package device

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// ErrOverrun means that an op wrote to memory between buffers.
var ErrOverrun = errors.New("device: written past a buffer")

// Guard is a device that puts a canary before and after every buffer: memory that no op
// may write. An op that writes past an end of its buffer hits a canary, and Intact names
// the buffer. An op that reads a canary reads NaN. An allocation needs the size of the
// buffer on the host, so a guard is for checks, not for service.
type Guard struct {
	Device

	mu    sync.Mutex
	taken map[Buffer]guarded // by the buffer without canaries
}

// guarded is a buffer with its canaries.
type guarded struct {
	whole Buffer
	from  string // file and line of the allocation
}

const (
	canaryBytes = 4096 // size of each canary
	canaryByte  = 0xff
)

// NewGuard returns dev with canaries around every later allocation.
func NewGuard(dev Device) *Guard { return &Guard{Device: dev, taken: map[Buffer]guarded{}} }

// Alloc allocates zeroed memory.
func (g *Guard) Alloc(bytes int64) (Buffer, error) {
	if bytes <= 0 {
		return Buffer{}, fmt.Errorf("%w: %d bytes asked for", ErrBadBuffer, bytes)
	}
	return g.Load(make([]byte, bytes))
}

// Uncleared is Alloc.
func (g *Guard) Uncleared(bytes int64) (Buffer, error) { return g.Alloc(bytes) }

// Capabilities returns the device's packing of weights and its ranks, and Intact.
func (g *Guard) Capabilities() Capabilities {
	c := g.Device.Capabilities()
	guarded := Capabilities{PacksWeights: c.PacksWeights, Intact: g.Intact}
	if c.Ranks != nil {
		ranks := *c.Ranks
		ranks.LoadEach, ranks.PinnedEach = g.loadEach, g.pinnedEach
		guarded.Ranks = &ranks
	}
	return guarded
}

// loadEach is [RankSet].LoadEach.
func (g *Guard) loadEach(data [][]byte) (Buffer, error) {
	all := make([][]byte, len(data))
	for i := range data {
		all[i] = withCanaries(data[i])
	}
	whole, err := g.Device.Capabilities().Ranks.LoadEach(all)
	return g.take(whole, err)
}

// Load allocates memory that holds a copy of data.
func (g *Guard) Load(data []byte) (Buffer, error) {
	if len(data) == 0 {
		return Buffer{}, fmt.Errorf("%w: nothing to load", ErrBadBuffer)
	}
	if ranks := g.Device.Capabilities().Ranks; ranks != nil { // hosts keep data itself, and Alloc's memory is written
		return g.loadEach(slices.Repeat([][]byte{data}, ranks.Count))
	}
	whole, err := g.Device.Load(withCanaries(data))
	return g.take(whole, err)
}

// withCanaries returns a copy of data between two canaries.
func withCanaries(data []byte) []byte {
	all := make([]byte, canaryBytes+len(data)+canaryBytes)
	copy(all[canaryBytes:], data)
	setCanaries(all)
	return all
}

// pinnedEach is [RankSet].PinnedEach.
func (g *Guard) pinnedEach(bytes int64) (Buffer, []*Mapped, error) {
	whole, each, err := g.Device.Capabilities().Ranks.PinnedEach(canaryBytes + bytes + canaryBytes)
	if err != nil {
		return Buffer{}, nil, err
	}
	for i, m := range each {
		setCanaries(m.data)
		each[i] = NewMapped(m.data[canaryBytes:canaryBytes+bytes], m.trace)
	}
	b, err := g.take(whole, nil)
	return b, each, err
}

// Pinned allocates memory that host and device both address.
func (g *Guard) Pinned(bytes int64) (Buffer, *Mapped, error) {
	if bytes <= 0 {
		return Buffer{}, nil, fmt.Errorf("%w: %d bytes asked for", ErrBadBuffer, bytes)
	}
	whole, m, err := g.Device.Pinned(canaryBytes + bytes + canaryBytes)
	if err != nil {
		return Buffer{}, nil, err
	}
	setCanaries(m.data)
	b, err := g.take(whole, nil)
	return b, NewMapped(m.data[canaryBytes:canaryBytes+bytes], m.trace), err
}

// setCanaries fills both ends of all.
func setCanaries(all []byte) {
	for i := range canaryBytes {
		all[i], all[len(all)-1-i] = canaryByte, canaryByte
	}
}

// take records a buffer and returns the part between its canaries.
func (g *Guard) take(whole Buffer, err error) (Buffer, error) {
	if err != nil {
		return Buffer{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b := whole.Slice(canaryBytes, whole.bytes-2*canaryBytes)
	g.taken[b] = guarded{whole, caller()}
	return b, nil
}

// caller returns the file and line, outside of this file, that asked for a buffer.
func caller() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if !strings.HasSuffix(f.File, "/guard.go") || !more {
			return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
	}
}

// Free checks b's canaries and frees it. The error also reports an overrun.
func (g *Guard) Free(b Buffer) error {
	g.mu.Lock()
	found, ok := g.taken[b]
	delete(g.taken, b)
	g.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: free of a part of a buffer", ErrBadBuffer)
	}
	return GiveBack(
		func() error { return g.intact(b, found) },
		func() error { return g.Device.Free(found.whole) })
}

// Intact checks every canary. The caller has waited for all ops. Errors: [ErrOverrun] for
// each end of a buffer that was overrun, and the device's own.
func (g *Guard) Intact() (err error) {
	g.mu.Lock()
	all := maps.Clone(g.taken)
	g.mu.Unlock()
	order := slices.SortedFunc(maps.Keys(all), func(a, b Buffer) int { return int(a.id) - int(b.id) })
	for _, b := range order {
		err = errors.Join(err, g.intact(b, all[b]))
	}
	return err
}

func (g *Guard) intact(b Buffer, in guarded) (err error) {
	ranks := g.Device.Capabilities().Ranks
	if ranks == nil {
		return g.intactIn(g.Read, b, in)
	}
	for rank := range ranks.Count {
		read := func(dst []byte, b Buffer) error { return ranks.Read(rank, dst, b) }
		err = errors.Join(err, g.intactIn(read, b, in))
	}
	return err
}

// intactIn checks the canaries of a buffer in memory that read reads.
func (g *Guard) intactIn(read func([]byte, Buffer) error, b Buffer, in guarded) error {
	before, after := make([]byte, canaryBytes), make([]byte, canaryBytes)
	err := errors.Join(
		read(before, in.whole.Slice(0, canaryBytes)),
		read(after, in.whole.Slice(canaryBytes+b.bytes, canaryBytes)))
	if err != nil {
		return err
	}
	slices.Reverse(before)
	for side, canary := range map[string][]byte{"before its beginning": before, "past its end": after} {
		if at := slices.IndexFunc(canary, func(c byte) bool { return c != canaryByte }); at >= 0 {
			err = errors.Join(err,
				fmt.Errorf("%w: the buffer of %d bytes from %s, %d bytes %s", ErrOverrun, b.bytes, in.from, at, side))
		}
	}
	return err
}
