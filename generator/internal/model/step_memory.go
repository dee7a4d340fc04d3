package model

import (
	"reel/kernels"
	"reel/kernels/device"
)

// Geometry is how much step memory holds at once.
type Geometry struct {
	MaxRows    int // token rows of a step at most: the prefill chunk or the batch
	MaxBatch   int // sequences, and so sampled rows of a step, at most
	Context    int // tokens of a sequence at most
	PageTokens int // tokens a KV page holds
	Pages      int // KV pages, the trash page not counted
	RingSlots  int // step descriptors and results in flight at most
	// KVType is how keys and values are stored; the zero value is float32.
	KVType kernels.DType
	// Guard has the keys and values of each layer stand apart in every page,
	// between canaries that StepMemory.Intact looks at. It takes twice the memory.
	Guard bool
}

// BlockTable is how many pages the longest sequence takes.
func (g Geometry) BlockTable() int { return (g.Context + g.PageTokens - 1) / g.PageTokens }

// StepMemory is all memory that steps work in, at fixed addresses: one arena for work
// that never overlaps itself, the slots, the KV pool, and the rings that host
// and device share.
type StepMemory struct {
	Geometry
	Layout kernels.StepLayout
	Slots  kernels.Slots
	Rows   kernels.Rows
	KV     kernels.KV

	ring, counter, results device.Buffer
	raw                    kernels.KVBeforeRoPE // of families with biases or head norms
	ringMap, resultMap     *device.Mapped
	taken                  []device.Buffer // all of it, to be freed

	x, q, attended, inner, logits, work device.Buffer
	scratch, scratchInner               device.Buffer // of rows of the residual, and of other rows
	picked, live                        device.Buffer // of a prompt's sampled rows: the residual, and which are there
	parts                               device.Buffer // of a prompt's sums
}

// NewStepMemory takes step memory, once, for the life of the engine; Free gives it back.
func (m *Model) NewStepMemory(dev device.Memory, g Geometry) (*StepMemory, error) {
	l := &StepMemory{Geometry: g, Layout: kernels.StepLayout{MaxRows: g.MaxRows, MaxSamples: g.MaxBatch}}
	if err := l.allocate(taking{dev, l}, m.Config); err != nil {
		return nil, device.GiveBack(func() error { return err }, func() error { return l.Free(dev) })
	}
	return l, nil
}

func (l *StepMemory) allocate(dev taking, c Config) (err error) {
	g := l.Geometry
	if l.Slots, err = kernels.AllocSlots(dev, g.MaxBatch, g.BlockTable(), g.Context); err != nil {
		return err
	}
	if l.Rows, err = kernels.AllocRows(dev, l.Layout); err != nil {
		return err
	}
	l.KV = kernels.KV{DType: g.KVType, Pages: g.Pages + 1, PageTokens: g.PageTokens, Layers: g.kvLayers(c.Layers), Heads: c.KVHeads, HeadDim: c.HeadDim}
	if l.KV.Data, err = l.allocateKV(dev); err != nil {
		return err
	}
	if l.counter, err = dev.Alloc(4); err != nil {
		return err
	}
	// Rows are found by it, also where a test has kernels not wait for what tells of them.
	if l.live, err = dev.Alloc(4 * int64(g.MaxBatch)); err != nil {
		return err
	}
	if l.work, err = dev.Alloc(kernels.AttendWorkspaceBytes(g.MaxRows, c.Heads, c.HeadDim, g.Context)); err != nil {
		return err
	}
	if l.parts, err = dev.Alloc(partBytes(g.MaxRows, c)); err != nil {
		return err
	}
	for _, a := range []struct {
		buf   *device.Buffer
		bytes int64
	}{
		{&l.x, 4 * int64(g.MaxRows*c.Hidden)},
		{&l.q, 4 * int64(g.MaxRows*c.Heads*c.HeadDim)},
		{&l.attended, 4 * int64(g.MaxRows*c.Heads*c.HeadDim)},
		{&l.inner, 4 * int64(g.MaxRows*c.Inner)},
		{&l.picked, 4 * int64(g.MaxBatch*c.Hidden)},
		{&l.logits, 4 * int64(g.MaxBatch) * int64(c.Vocab)},
		{&l.scratch, kernels.RoundedBytes(g.MaxRows, c.Hidden)},
		{&l.scratchInner, kernels.RoundedBytes(g.MaxRows, max(c.Heads*c.HeadDim, c.Inner))},
	} {
		if *a.buf, err = dev.Uncleared(a.bytes); err != nil {
			return err
		}
	}
	if c.Bias || c.HeadNorms {
		if l.raw, err = kernels.AllocKVBeforeRoPE(dev, g.MaxRows, c.KVHeads, c.HeadDim); err != nil {
			return err
		}
	}
	if l.ring, l.ringMap, err = dev.Pinned(4 * int64(l.RingSlots*l.Layout.Words())); err != nil {
		return err
	}
	l.results, l.resultMap, err = dev.Pinned(4 * int64(l.RingSlots*l.MaxBatch*kernels.ResultWords))
	return err
}

// partBytes is what the product of a layer that takes the most takes for parts of its sums.
func partBytes(rows int, c Config) int64 {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return max(kernels.PartialsBytes(rows, c.Hidden, q, kv, kv), kernels.PartialsBytes(rows, q, c.Hidden),
		kernels.PartialsBytes(rows, c.Hidden, c.Inner, c.Inner), kernels.PartialsBytes(rows, c.Inner, c.Hidden))
}

// taking is a memory that notes what step memory takes.
type taking struct {
	device.Memory
	l *StepMemory
}

func (t taking) Alloc(bytes int64) (device.Buffer, error) {
	b, err := t.Memory.Alloc(bytes)
	if err == nil {
		t.l.taken = append(t.l.taken, b)
	}
	return b, err
}

// Uncleared allocates memory that is written before it is read. If the device does
// not clear it, compute-sanitizer reports a read that comes first.
func (t taking) Uncleared(bytes int64) (device.Buffer, error) {
	b, err := t.Memory.Uncleared(bytes)
	if err == nil {
		t.l.taken = append(t.l.taken, b)
	}
	return b, err
}

func (t taking) Load(data []byte) (device.Buffer, error) {
	b, err := t.Memory.Load(data)
	if err == nil {
		t.l.taken = append(t.l.taken, b)
	}
	return b, err
}

func (t taking) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	b, m, err := t.Memory.Pinned(bytes)
	if err == nil {
		t.l.taken = append(t.l.taken, b)
	}
	return b, m, err
}

// ArenaBytes is what step memory takes of the device's memory beside the KV pool.
func (l *StepMemory) ArenaBytes() (n int64) {
	for _, b := range l.taken {
		if b != l.ring && b != l.results && b != l.KV.Data {
			n += b.Bytes()
		}
	}
	return n
}

// Free gives the memory back. No step runs in it any more.
func (l *StepMemory) Free(dev device.Memory) error {
	var releases []func() error
	for _, b := range l.taken {
		releases = append(releases, func() error { return dev.Free(b) })
	}
	l.taken = nil
	return device.GiveBack(releases...)
}

// Activations are the buffers that a pass writes before it reads them.
func (l *StepMemory) Activations() []device.Buffer {
	return []device.Buffer{l.x, l.q, l.attended, l.inner, l.picked, l.logits}
}

// Arena is a buffer that tells this step memory from another.
func (l *StepMemory) Arena() device.Buffer { return l.x }

// Write puts the descriptor of step s, numbered from 0 without a gap, into its
// place in the ring, where the step's first op finds it.
func (l *StepMemory) Write(s *kernels.Step) error {
	words := l.Layout.Words()
	at := int(s.Number%uint64(l.RingSlots)) * words
	return l.Layout.Encode(l.ringMap.Bytes()[4*at:4*(at+words)], s)
}

// Result reads what step number published for its i-th sample.
func (l *StepMemory) Result(number uint64, i int, r *kernels.Result) {
	at := 4 * (int(number%uint64(l.RingSlots))*l.MaxBatch + i) * kernels.ResultWords
	kernels.DecodeResult(l.resultMap.Bytes()[at:at+4*kernels.ResultWords], r)
}

// Logits is where the head leaves the logits of a step: float32 [MaxBatch][vocab].
func (l *StepMemory) Logits() device.Buffer { return l.logits }
