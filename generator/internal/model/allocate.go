package model

import (
	"fmt"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// NewStepMemory allocates step memory for the life of an engine; [StepMemory.Free] gives it
// back. Errors: [device.ErrBadShape] if RingSlots is no power of two or a draft model is missing, and those of the
// device. After an error nothing stays allocated.
func (m *Model) NewStepMemory(dev device.Memory, g Geometry) (*StepMemory, error) {
	if g.RingSlots < 1 || g.RingSlots&(g.RingSlots-1) != 0 {
		return nil, fmt.Errorf("%w: rings of %d entries: the number must be a power of two",
			device.ErrBadShape, g.RingSlots)
	}
	if g.Drafter == ModelDrafter && g.DraftModel == nil {
		return nil, fmt.Errorf("%w: no draft model", device.ErrBadShape)
	}
	s := &StepMemory{Geometry: g, ranks: m.Config.ranks(), signals: signalsOf(dev),
		Layout: kernels.StepLayout{MaxRows: g.MaxRows, MaxSamples: g.MaxSamples}}
	if err := s.allocate(tracked{dev, s}, m.Config); err != nil {
		return nil, device.GiveBack(func() error { return err }, func() error { return s.Free(dev) })
	}
	return s, nil
}

func (s *StepMemory) allocate(dev tracked, c Config) (err error) {
	g := s.Geometry
	if s.Slots, err = kernels.AllocSlots(dev, g.Slots, g.BlockTable(), g.Context); err != nil {
		return err
	}
	s.Slots.Masks = g.Masks
	if s.shared, err = s.Slots.AllocShared(dev, c.Vocab); err != nil {
		return err
	}
	if s.Rows, err = kernels.AllocRows(dev, s.Layout); err != nil {
		return err
	}
	if err := s.allocatePass(dev, c); err != nil {
		return err
	}
	if err := s.allocateSamples(dev, c); err != nil {
		return err
	}
	s.pools = []kernels.KV{s.KV}
	if g.asksModel() {
		if s.drafter, err = s.allocateDrafter(dev, c); err != nil {
			return err
		}
		s.pools = append(s.pools, s.drafter.pools...)
	}
	if s.descriptors, s.descriptorMap, err = dev.Pinned(4 * int64(s.RingSlots*s.Layout.Words())); err != nil {
		return err
	}
	if s.restored, s.restoredMap, err = dev.Pinned(4 * int64(s.RingSlots*s.RestoreWords())); err != nil {
		return err
	}
	if g.Drafter == GivenDrafter {
		if s.given, s.givenMap, err = dev.Pinned(4 * int64(s.Slots.Count) * int64(g.Context)); err != nil {
			return err
		}
	}
	s.records, s.recordMap, err = dev.Pinned(4 * int64(s.RingSlots*s.MaxSamples*kernels.RecordWords))
	return err
}

// allocatePass allocates the pool and what the layers of a pass and its head work in.
func (s *StepMemory) allocatePass(dev tracked, c Config) (err error) {
	g := s.Geometry
	s.layers = g.guarded(c.LayersKV())
	s.KV = poolOf(kernels.KV{DType: g.KVType, Pages: g.Pages + 1, PageTokens: g.PageTokens}, s.layers)
	if s.KV.Data, err = g.allocatePool(dev, s.KV); err != nil {
		return err
	}
	list := append(s.passBuffers(dev, c), s.partBuffers(dev, c)...)
	if err := allocateBuffers(append(list, s.tagBuffers(dev, c)...)); err != nil {
		return err
	}
	s.setParts(c)
	if c.preparesHeads() {
		kv := c.most(func(c Config) int { return c.kvHeads() * c.HeadDim })
		s.beforeRoPE, err = kernels.AllocKVBeforeRoPE(dev, g.MaxRows, kv, c.wide().HeadDim)
	}
	return err
}

// wantedBuffer is a buffer to be allocated by alloc.
type wantedBuffer struct {
	buffer *device.Buffer
	alloc  func(bytes int64) (device.Buffer, error)
	bytes  int64
}

// passBuffers lists activations and workspaces. Only buffers that a pass writes before it reads them are left
// uncleared.
func (s *StepMemory) passBuffers(dev tracked, c Config) []wantedBuffer {
	g := s.Geometry
	list := []wantedBuffer{
		{&s.x, dev.Uncleared, 4 * int64(g.MaxRows*c.Hidden)},
		{&s.q, dev.Uncleared, 4 * int64(g.MaxRows*c.heads()*c.wide().queryDim())},
		{&s.attended, dev.Uncleared, 4 * int64(g.MaxRows*c.wide().attendedWidth())},
		{&s.inner, dev.Uncleared, 4 * int64(g.MaxRows*c.most(Config.innerWidth))},
	}
	if !g.NoWorkspaces {
		list = append(list, wantedBuffer{&s.partials, dev.Alloc, partialsBytes(g.MaxRows, c)},
			wantedBuffer{&s.roundedHidden, dev.Uncleared,
				kernels.RoundedBytes(g.MaxRows, max(c.layerInput(), c.queryRank()))},
			wantedBuffer{&s.roundedInner, dev.Uncleared, kernels.RoundedBytes(g.MaxRows, max(c.wide().attendedWidth(),
				c.most(func(c Config) int { return c.Inner }), c.sharedWidth(), c.PerLayer, c.Eagle.features()))})
	}
	if c.Embedding == nil {
		list = append(list, wantedBuffer{&s.logits, dev.Uncleared, 4 * int64(g.MaxSamples) * int64(c.Vocab)})
	}
	list = append(list, s.expertBuffers(dev, c)...)
	list = append(list, s.latentBuffers(dev, c)...)
	list = append(list, s.perLayerBuffers(dev, c)...)
	if rows := 4 * int64(max(g.MaxRows, g.MaxSamples)*c.Hidden); c.NormsAfter && c.ranks() == 1 {
		list = append(list, wantedBuffer{&s.branch, dev.Uncleared, rows})
		if c.expertsBeside() {
			list = append(list, wantedBuffer{&s.beside[0], dev.Uncleared, rows}, wantedBuffer{&s.beside[1], dev.Uncleared, rows})
		}
	}
	attend := int64(c.most(func(each Config) int {
		return int(kernels.AttendWorkspaceBytes(g.MaxRows, c.heads(), each.HeadDim, g.Context))
	}))
	if c.Latent != nil {
		attend = kernels.LatentWorkspaceBytes(g.MaxRows, c.Heads, c.Latent.Rank, g.Context)
	}
	if s.attendWorkspace.Bytes() < attend { // a draft model may share the model's
		list = append(list, wantedBuffer{&s.attendWorkspace, dev.Alloc, attend})
	}
	return list
}

// allocateSamples allocates what stage and the ops after the head work in.
func (s *StepMemory) allocateSamples(dev tracked, c Config) (err error) {
	g := s.Geometry
	list := []wantedBuffer{
		{&s.counter, dev.Alloc, 4},
		// Cleared, so that an index read too early, as kernels without waits do in tests, is in range.
		{&s.sampledIndex, dev.Alloc, 4 * int64(g.MaxSamples)},
		{&s.sampledX, dev.Uncleared, 4 * int64(g.MaxSamples*c.Hidden)},
	}
	if c.Embedding == nil {
		list = append(list, wantedBuffer{&s.edited, dev.Uncleared, 4 * int64(g.MaxSamples) * int64(c.Vocab)})
	} else if s.vectors, s.vectorMap, err = dev.Pinned(4 * int64(g.RingSlots*g.MaxSamples*c.Hidden)); err != nil {
		return err
	}
	return allocateBuffers(list)
}

// expertBuffers lists what a router writes for the experts, and what both work in.
func (s *StepMemory) expertBuffers(dev tracked, c Config) []wantedBuffer {
	e := c.Experts
	if e == nil {
		return nil
	}
	s.chosen.Experts, s.chosen.Used = e.Count, e.Used
	places := int64(s.MaxRows * e.Used)
	list := []wantedBuffer{
		// Cleared, so that an id read too early, as kernels without waits do in tests, is in range.
		{&s.chosen.IDs, dev.Alloc, 4 * places},
		{&s.chosen.Weights, dev.Alloc, 4 * places},
		{&s.chosen.Segments, dev.Alloc, kernels.SegmentsBytes(s.MaxRows, e.Used, e.Count)},
		{&s.expertsWork.Results, dev.Uncleared, 4 * places * int64(c.Hidden)},
		{&s.expertsWork.Rounded, dev.Uncleared, kernels.ExpertsRoundedBytes(s.MaxRows, e.Used, e.Count, c.Hidden)},
		{&s.expertsWork.Gated, dev.Uncleared, kernels.ExpertsRoundedBytes(s.MaxRows, e.Used, e.Count, e.Inner)},
		{&s.routeWorkspace.Logits, dev.Uncleared, 4 * int64(s.MaxRows*e.Count)},
		{&s.routeWorkspace.Arrivals, dev.Alloc, 4 * int64(s.MaxRows)},
	}
	if e.Shared > 0 {
		list = append(list, wantedBuffer{&s.sharedInner, dev.Uncleared, 4 * int64(s.MaxRows*e.Shared)})
	}
	return list
}

func allocateBuffers(list []wantedBuffer) (err error) {
	for _, b := range list {
		if *b.buffer, err = b.alloc(b.bytes); err != nil {
			return err
		}
	}
	return nil
}

// partialsBytes returns the size of the partials for the product of all layers that needs most.
func partialsBytes(rows int, c Config) (most int64) {
	for _, each := range c.kinds() {
		most = max(most, layerPartials(rows, each))
	}
	if n := c.PerLayer; n > 0 {
		most = max(most, kernels.PartialsBytes(rows, c.Hidden, n*c.Layers), kernels.PartialsBytes(rows, c.Hidden, n),
			kernels.PartialsBytes(rows, n, c.Hidden))
	}
	return most
}

// layerPartials is that of one layer.
func layerPartials(rows int, c Config) int64 {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	most := max(kernels.PartialsBytes(rows, c.layerInput(), q, kv, kv),
		kernels.PartialsBytes(rows, c.attendedWidth(), c.Hidden),
		kernels.PartialsBytes(rows, c.Hidden, c.Inner, c.Inner), kernels.PartialsBytes(rows, c.Inner, c.Hidden))
	if n := c.sharedWidth(); n > 0 {
		most = max(most, kernels.PartialsBytes(rows, c.Hidden, n, n), kernels.PartialsBytes(rows, n, c.Hidden))
	}
	if l := c.Latent; l != nil {
		most = max(most, kernels.PartialsBytes(rows, c.Hidden, q), kernels.PartialsBytes(rows, c.Hidden, l.Rank+l.Rope),
			kernels.PartialsBytes(rows, c.Hidden, l.QueryRank), kernels.PartialsBytes(rows, l.QueryRank, q))
	}
	if n := c.Eagle.features(); n > 0 {
		most = max(most, kernels.PartialsBytes(rows, n, c.Hidden))
	}
	return most
}

// Free gives the memory back. No step may be running in it.
func (s *StepMemory) Free(dev device.Memory) error {
	var releases []func() error
	for _, b := range s.allocated {
		releases = append(releases, func() error { return dev.Free(b) })
	}
	s.allocated = nil
	return device.GiveBack(releases...)
}

// tracked is the memory of a device that records each allocation in s.allocated.
type tracked struct {
	device.Memory
	s *StepMemory
}

// track records b, unless err is set, and returns both.
func (t tracked) track(b device.Buffer, err error) (device.Buffer, error) {
	if err == nil {
		t.s.allocated = append(t.s.allocated, b)
	}
	return b, err
}

func (t tracked) Alloc(n int64) (device.Buffer, error)     { return t.track(t.Memory.Alloc(n)) }
func (t tracked) Uncleared(n int64) (device.Buffer, error) { return t.track(t.Memory.Uncleared(n)) }
func (t tracked) Load(data []byte) (device.Buffer, error)  { return t.track(t.Memory.Load(data)) }

func (t tracked) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	b, m, err := t.Memory.Pinned(bytes)
	_, err = t.track(b, err)
	return b, m, err
}
