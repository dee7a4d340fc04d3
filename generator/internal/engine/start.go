package engine

import (
	"errors"
	"fmt"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// New allocates all memory that the engine will use on dev, runs every op once, and captures the graphs of the
// lattice. On error everything is freed.
func New(dev device.Device, m *model.Model, o Options) (*Engine, error) {
	if o.Progress == nil {
		o.Progress = func(float64, string) {}
	}
	e := &Engine{opts: o, dev: dev, model: m, eos: map[int32]bool{}, sequences: map[Handle]*sequence{},
		users: map[uint32]tally{}, names: map[User]int{}, awaited: awaited{round: 1}, drafts: newDrafts(o)}
	for _, id := range m.Config.EOS {
		e.eos[id] = true
	}
	for _, id := range m.Config.Suppressed {
		if e.suppressed == nil {
			e.suppressed = make([]uint32, kernels.MaskWords(m.Config.Vocab))
		}
		e.suppressed[id/32] |= 1 << (id % 32)
	}
	if err := e.wakeup.open(); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if err := e.start(); err != nil {
		return nil, errors.Join(err, e.close(err))
	}
	return e, nil
}

// start does the work of New, which calls close if it fails.
func (e *Engine) start() error {
	if err := e.allocate(); err != nil {
		return err
	}
	if e.opts.Allocated != nil {
		e.opts.Allocated()
	}
	e.pool = graphs.NewPool(graphs.Options{Pass: e.pass, Identity: e.identity(), MaxGraphs: e.opts.MaxGraphs,
		Budget: e.opts.GraphMemory, Estimate: e.opts.GraphMemory / int64(max(1, e.opts.MaxGraphs)),
		Wake: e.requestMaintenance})
	if err := e.warm(); err != nil {
		return err
	}
	err := e.precapture()
	if err != nil {
		return fmt.Errorf("engine: capturing graphs: %w", err)
	}
	o := e.opts
	e.sched, err = scheduler.New(scheduler.Options{MaxBatch: o.MaxBatch, Reserve: o.Reserve, MaxQueue: o.maxQueued(),
		Chunk: o.Chunk, LongChunk: o.LongChunk, Gap: o.Gap, Context: o.Context, PageTokens: o.PageTokens, Pages: o.Pages,
		ReservePages: o.ReservePages, MixedRows: o.mixedTable(), Coming: e.coming.more,
		RestoreWords: e.memory.RestoreWords(), FirstStep: e.next, InFlight: depth, MaxVerify: o.verifyRows(),
		PlanDrafts: e.draftPlanner()})
	if err == nil {
		e.sched.WriteFiles(o.Files)
		if o.Files {
			e.stats.Disk.State = protocol.DiskOpening
		}
	}
	e.stats.Arena = e.memory.ArenaBytes()
	e.stats.Reserve = protocol.Reserve{Slots: o.Reserve, Pages: o.Reserve * o.ReservePages,
		Tokens: o.ReservePages * o.PageTokens}
	e.stats.KV = protocol.KV{PageTokens: o.PageTokens, Pages: o.Pages, Bytes: e.memory.PoolBytes(),
		PageBytes: e.memory.PageBytes()}
	e.stats.KV.HostBytes = o.HostCache / e.stats.KV.PageBytes * e.stats.KV.PageBytes
	return err
}

// precapture captures the lattice and measures the device memory that one graph took.
func (e *Engine) precapture() error {
	before, err := e.freeMemory()
	if err != nil {
		return err
	}
	_, err = e.pool.Precapture(e.stream, e.opts.Lattice(), func(done, of int) {
		e.opts.Progress(float64(done)/float64(of), "capturing graphs")
	})
	if err != nil {
		return err
	}
	after, err := e.freeMemory()
	e.graphBytes = (before - after) / int64(max(1, e.pool.Stats().Precaptured))
	return err
}

// Lattice returns the keys that are captured at start. MaxBatch is one of the decode buckets, since one user's
// decode steps have at most that many rows. Of verify steps those of one sequence are captured.
func (o Options) Lattice() []graphs.Key {
	counts := o.Precapture
	if counts == nil {
		counts = graphs.DefaultCounts(o.Chunk)
	}
	if o.Embeddings { // its only decode steps are those of heartbeats
		return o.withSeveral(graphs.Lattice(counts, o.mostPrompt(), 1))
	}
	keys := graphs.Lattice(counts, o.mostPrompt(), o.MaxBatch, o.slots())
	for queries := o.mostQueries(); queries > 1; queries-- {
		keys = append(keys, graphs.VerifyStep(1, queries))
	}
	if o.asksModel() {
		for _, k := range keys {
			if k.Class == graphs.DecodeClass {
				keys = append(keys, k.Following())
			}
		}
	}
	return append(o.withSeveral(keys), o.mixedLattice()...)
}

// withSeveral returns keys, followed by those of steps in which several prompts end, if there can be such steps. They have
// the same numbers of tokens, but only whole steps and multiples of promptGrain: other steps are padded, and the roller
// captures those that are used.
func (o Options) withSeveral(keys []graphs.Key) []graphs.Key {
	if o.Prompts() == 1 {
		return keys
	}
	for _, k := range keys {
		n := k.Tokens()
		if k.Class == graphs.PrefillClass && (n%promptGrain == 0 || n == o.Chunk || n == o.LongChunk) {
			keys = append(keys, k.OfSeveral())
		}
	}
	return keys
}

// mostPrompt returns the most prompt tokens of a step.
func (o Options) mostPrompt() int { return max(o.Chunk, o.LongChunk) }

// Prompts returns the most prompts that end in one prefill step, which are its sampled rows.
func (o Options) Prompts() int { return min(o.MaxBatch, scheduler.MaxPrompts) }

// Geometry returns the step memory that an engine takes; without a guard.
func (o Options) Geometry() model.Geometry {
	return model.Geometry{MaxRows: max(o.mostPrompt(), o.slots()), Slots: o.slots(),
		MaxSamples: max(o.slots(), o.verifyRows()),
		Context:    o.Context, PageTokens: o.PageTokens, Pages: o.Pages, RingSlots: RingSlots, KVType: o.KVType,
		NoWorkspaces: o.NoWorkspaces,
		Masks:        o.mostQueries(), Drafter: o.drafter(), DraftModel: o.DraftModel, DraftWindow: o.DraftWindow}
}

// freeMemory returns the device's free memory in bytes. For a device that does not report it, freeMemory returns
// the bytes of the pool's graphs, negated, so that the difference before and after captures is right.
func (e *Engine) freeMemory() (int64, error) {
	if free := e.dev.Capabilities().FreeMemory; free != nil {
		return free()
	}
	return -e.pool.Stats().Bytes, nil
}

// allocate creates the streams, the events and the step memory.
func (e *Engine) allocate() (err error) {
	if e.stream, err = e.dev.NewStream(); err != nil {
		return err
	}
	if e.copies, err = e.dev.NewStream(); err != nil {
		return err
	}
	if e.opts.HostCache > 0 {
		if e.host.stream, err = e.dev.NewStream(); err != nil {
			return err
		}
	}
	for range depth {
		ev, err := e.dev.NewEvent()
		if err != nil {
			return err
		}
		e.events = append(e.events, ev)
	}
	g := e.opts.Geometry()
	g.Guard = e.dev.Capabilities().Intact != nil
	if e.memory, err = e.model.NewStepMemory(e.dev, g); err != nil {
		return fmt.Errorf("engine: step memory: %w", err)
	}
	return nil
}

// identity returns the device, buffers and geometry that the engine's graphs are bound to.
func (e *Engine) identity() graphs.Identity {
	kv := e.memory.KV
	i := graphs.Identity{Device: e.dev.Name(), Layout: [5]int{kv.Pages, kv.PageTokens, kv.Layers, kv.Heads, kv.HeadDim},
		Memory: [4]device.Buffer{e.memory.Arena(), kv.Data, e.model.Weights()}}
	if d := e.opts.DraftModel; d != nil {
		i.Memory[3] = d.Weights()
	}
	return i
}

// pass launches the forward pass of a key's shape. A prefill step of several prompts samples at most Options.Prompts rows,
// a mixed one Options.mixedSamples; the scheduler guarantees it.
func (e *Engine) pass(s device.Stream, k graphs.Key) error {
	shape := model.Shape{Class: kernels.Decode, Rows: k.Tokens(), Samples: min(k.Tokens(), e.opts.slots())}
	switch k.Class {
	case graphs.MixedClass:
		shape.Class, shape.Generated, shape.Samples = kernels.Prefill, int(k.Rows), min(k.Tokens(), e.opts.mixedSamples())
	case graphs.PrefillClass:
		shape.Class, shape.Samples = kernels.Prefill, 1
		if k == k.OfSeveral() {
			shape.Samples = min(k.Tokens(), e.opts.Prompts())
		}
	case graphs.VerifyClass:
		shape.Samples, shape.Queries = k.Tokens(), int(k.Queries)
	case graphs.DecodeClass:
		shape.Follow = k == k.Following()
	}
	return e.model.Forward(s, e.memory, shape)
}

// warm runs a step of padding of each class, so that every op is loaded before it is captured.
func (e *Engine) warm() error {
	keys := []graphs.Key{graphs.Prefill(e.opts.Chunk), graphs.Decode(1)}
	for _, k := range e.opts.Lattice() { // long steps may have kernels of their own
		if k.Class == graphs.PrefillClass && k.Tokens() > e.opts.Chunk {
			keys = append(keys, k)
			break
		}
	}
	if n := e.opts.mostQueries(); n > 1 {
		keys = append(keys, graphs.VerifyStep(1, n))
	}
	if e.opts.asksModel() {
		keys = append(keys, graphs.Decode(1).Following())
	}
	if mixed := e.opts.mixedLattice(); len(mixed) > 0 {
		keys = append(keys, mixed[0])
	}
	for _, k := range keys {
		if err := e.memory.Write(&kernels.Step{Number: e.next}); err != nil {
			return err
		}
		e.next++
		if err := e.pass(e.stream, k); err != nil {
			return fmt.Errorf("engine: first run of %s: %w", k, err)
		}
		if err := e.stream.Synchronize(); err != nil {
			return fmt.Errorf("engine: first run of %s: %w", k, err)
		}
	}
	return nil
}

// close frees everything that start allocated, after cause ended the engine. A lost device is not called again, and
// memory that a disk which hangs may still use is not freed: the process will end and its memory with it.
func (e *Engine) close(cause error) error {
	err := errors.Join(e.endRoller(errors.Is(cause, device.ErrSticky)), e.wakeup.close())
	e.endHostTier()
	filesEnded := e.endFiles()
	if e.sched != nil { // nothing runs any more, even on a lost device
		e.abandonTransfers()
		for _, m := range e.moves {
			e.sched.FinishMove(m.Move)
		}
		e.sched.Complete(e.next)
		e.publish()
	}
	if errors.Is(cause, device.ErrSticky) || errors.Is(err, device.ErrSticky) || !filesEnded {
		return err
	}
	return errors.Join(err, device.GiveBack(e.releases()...))
}

// endRoller stops the roller and returns its error. If the device is lost, the roller makes no further call.
func (e *Engine) endRoller(lost bool) error {
	if e.roller == nil {
		return nil
	}
	if lost {
		e.roller.Abandon()
	} else {
		e.roller.Stop()
	}
	return <-e.rolling
}

// releases returns the functions that free everything, in order. Streams come first: destroying one waits for its
// work, after which the memory that the work used may be freed.
func (e *Engine) releases() (all []func() error) {
	for _, s := range []device.Stream{e.stream, e.copies, e.host.stream} {
		if s != nil {
			all = append(all, s.Destroy)
		}
	}
	if e.pool != nil {
		all = append(all, e.pool.Close)
	}
	for _, m := range e.moves {
		all = append(all, m.done.Destroy)
	}
	all = append(all, e.host.releases(e.dev)...)
	all = append(all, e.files.releases(e.dev)...)
	for _, ev := range e.events {
		all = append(all, ev.Destroy)
	}
	if e.memory != nil {
		all = append(all, func() error { return e.memory.Free(e.dev) })
	}
	return all
}
