package measure

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// ringSlots is the number of descriptors in the rig's ring. Each launch of stage takes the
// next one, so all of them hold the same step.
const ringSlots = 2

// rig runs the ops of passes, each kind by itself, on its own step memory.
type rig struct {
	dev     device.Device
	stream  device.Stream
	model   *model.Model
	memory  *model.StepMemory
	prompts int    // the most prompts that end in a step
	staged  uint64 // descriptors that the device has taken
}

// newRig allocates the memory that the passes need, or as much as a generator has that serves.
func newRig(l *assembly.Prepared, passes []pass, served bool) (*rig, error) {
	e := l.EngineOptions
	g := model.Geometry{Slots: e.MaxBatch, MaxSamples: e.MaxBatch, PageTokens: e.PageTokens, RingSlots: ringSlots,
		KVType: e.KVType}
	for _, p := range passes {
		g.MaxRows, g.Context = max(g.MaxRows, p.rows), max(g.Context, p.context)
		g.Pages = max(g.Pages, p.sequences()*((p.context+g.PageTokens-1)/g.PageTokens))
	}
	if s := e.Geometry(); served {
		g.MaxRows, g.Slots, g.MaxSamples, g.Context = s.MaxRows, s.Slots, s.MaxSamples, s.Context
	}
	r := &rig{dev: l.Hardware.Device, model: l.Model, prompts: e.Prompts()}
	var err error
	if r.stream, err = r.dev.NewStream(); err != nil {
		return nil, err
	}
	if r.memory, err = l.Model.NewStepMemory(r.dev, g); err != nil || !served {
		return r, err
	}
	return r, r.longest(max(e.Chunk, e.LongChunk))
}

// longest runs a prefill pass of so many padding rows, as an engine does at its start.
func (r *rig) longest(rows int) error {
	if err := r.write(kernels.Step{}); err != nil {
		return err
	}
	ops, err := r.ops(pass{phase: "prefill", rows: rows, context: rows}, false)
	if err != nil {
		return err
	}
	return r.run(ops)
}

// recorder is a stream that records launches and runs nothing.
type recorder struct {
	device.Stream
	ops []device.Op
}

// Launch records op.
func (r *recorder) Launch(op device.Op) error {
	r.ops = append(r.ops, op)
	return nil
}

// measure prepares a pass and measures each kind of its ops, then the whole pass.
func (r *rig) measure(p pass) ([]Row, error) {
	if err := r.prepare(p); err != nil {
		return nil, err
	}
	ops, err := r.ops(p, true)
	if err != nil {
		return nil, err
	}
	whole, err := r.ops(p, false)
	if err != nil {
		return nil, err
	}
	if err := r.run(ops); err != nil { // fills all buffers with the values of a pass
		return nil, err
	}
	names, by := kinds(ops)
	by["pass"] = whole
	var rows []Row
	for _, name := range append(names, "pass") {
		kind := by[name]
		if name != "pass" {
			if kind, err = r.refill(ops, kind); err != nil {
				return nil, err
			}
		}
		row, err := r.kind(name, kind, p)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// refill returns those of a kind's ops that read a choice of experts of as many rows as the first, and runs the pass up
// to the last of them: the choice of a prompt's last layer, for its sampled rows alone, is another layout of the same
// memory. Other kinds it returns as they are.
func (r *rig) refill(pass, kind []device.Op) ([]device.Op, error) {
	rows, chosen := choice(kind[0])
	if !chosen {
		return kind, nil
	}
	kept := slices.DeleteFunc(slices.Clone(kind), func(op device.Op) bool { n, _ := choice(op); return n != rows })
	last := 0
	for i, op := range pass {
		if n, chosen := choice(op); chosen && n == rows && op.Kernel() == kind[0].Kernel() {
			last = i
		}
	}
	return kept, r.run(pass[:last+1])
}

// choice returns the rows of an op that reads which experts rows have chosen, and whether op does.
func choice(op device.Op) (rows int, reads bool) {
	switch o := op.(type) {
	case kernels.ExpertGateUp:
		return o.T, true
	case kernels.ExpertDown:
		return o.T, true
	}
	return 0, false
}

// ops returns the ops that a pass launches, or with apart those of one whose kinds of op may be launched by themselves.
func (r *rig) ops(p pass, apart bool) ([]device.Op, error) {
	var pass recorder
	shape := r.shape(p.rows)
	shape.Apart = apart
	if p.phase == "prefill" {
		shape.Class, shape.Samples = kernels.Prefill, 1
		if p.sequences() > 1 {
			shape.Samples = min(p.rows, r.prompts)
		}
	}
	err := r.model.Forward(&pass, r.memory, shape)
	return pass.ops, err
}

// shape returns the shape of an engine's step of that many rows. It has the most samples
// that the step may have.
func (r *rig) shape(rows int) model.Shape {
	return model.Shape{Rows: rows, Samples: min(rows, r.memory.MaxSamples)}
}

// kind measures the ops of one kind. A whole pass counts as one launch.
func (r *rig) kind(name string, ops []device.Op, p pass) (row Row, err error) {
	row = Row{Kernel: name, Phase: p.phase, Rows: p.rows, Context: p.context, Launches: len(ops)}
	for _, op := range ops {
		bytes, flops := cost(op, p)
		row.Bytes += bytes
		row.Flops += flops
	}
	if name == "pass" {
		row.Launches = 1
	}
	row.Bytes /= int64(row.Launches)
	row.Flops /= int64(row.Launches)
	if row.TimesUS, err = r.times(ops); err != nil {
		return row, err
	}
	for i := range row.TimesUS {
		row.TimesUS[i] *= float64(len(ops)) / float64(row.Launches)
	}
	row.US = slices.Sorted(slices.Values(row.TimesUS))[len(row.TimesUS)/2]
	return row, nil
}

const (
	replayTime = 4 * time.Millisecond // of one replay at least, so that waiting for it adds little
	maxNodes   = 512                  // launches in one graph
	samples    = 9                    // measured replays
)

// times returns the microseconds of one launch, for each of several replays of a graph
// that repeats ops.
func (r *rig) times(ops []device.Op) ([]float64, error) {
	begun := time.Now()
	if err := r.run(ops); err != nil {
		return nil, err
	}
	again := min(int(replayTime/max(1, time.Since(begun)))+1, max(1, maxNodes/len(ops)))
	repeated := slices.Repeat(ops, again)
	x, done, err := r.captured(repeated)
	if err != nil {
		return nil, err
	}
	var times []float64
	for i := range samples + 2 {
		begun := time.Now()
		if err := r.replay(x, repeated); err != nil {
			return nil, errors.Join(err, done())
		}
		if i >= 2 { // the first two warm up
			times = append(times, time.Since(begun).Seconds()*1e6/float64(len(repeated)))
		}
	}
	return times, done()
}

// captured captures ops into a graph; done destroys it.
func (r *rig) captured(ops []device.Op) (x device.Exec, done func() error, err error) {
	runtime.LockOSThread() // a capture must end on the thread that began it
	defer runtime.UnlockOSThread()
	if err := r.stream.BeginCapture(); err != nil {
		return nil, nil, err
	}
	for _, op := range ops {
		err = errors.Join(err, r.stream.Launch(op))
	}
	g, ended := r.stream.EndCapture()
	if err = errors.Join(err, ended); err != nil {
		return nil, nil, err
	}
	if x, err = g.Instantiate(); err != nil {
		return nil, nil, errors.Join(err, g.Destroy())
	}
	done = func() error { return device.GiveBack(x.Destroy, g.Destroy) }
	if err = r.stream.Upload(x); err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return x, done, nil
}

// replay replays a graph of ops and waits.
func (r *rig) replay(x device.Exec, ops []device.Op) error {
	r.staged += stages(ops)
	if err := r.stream.Replay(x); err != nil {
		return err
	}
	return r.stream.Synchronize()
}

// run launches ops one by one and waits.
func (r *rig) run(ops []device.Op) error {
	r.staged += stages(ops)
	for _, op := range ops {
		if err := r.stream.Launch(op); err != nil {
			return err
		}
	}
	return r.stream.Synchronize()
}

// prepare gives the device the block tables of a pass, and writes its descriptor into every
// slot of the ring.
func (r *rig) prepare(p pass) error {
	step := p.step()
	for _, pages := range p.pages(r.memory) {
		if err := r.write(kernels.Step{Pages: pages}); err != nil {
			return err
		}
	}
	return r.write(step)
}

// write writes a step into every slot of the ring and stages it once.
func (r *rig) write(step kernels.Step) error {
	for i := range uint64(ringSlots) {
		step.Number = r.staged + i
		if err := r.memory.Write(&step); err != nil {
			return err
		}
	}
	var pass recorder
	if err := r.model.Forward(&pass, r.memory, r.shape(max(1, len(step.Rows)))); err != nil {
		return err
	}
	return r.run(pass.ops[:1])
}

// step returns the descriptor of a pass: the last token of each sequence, or whole prompts.
func (p pass) step() (s kernels.Step) {
	for i := range p.rows {
		row := kernels.Row{Slot: int32(i / p.context), Position: int32(i % p.context), Token: int32(i)}
		if p.phase == "decode" {
			row.Slot, row.Position = int32(i), int32(p.context-1)
		}
		if row.Position == 0 || p.phase == "decode" {
			s.Inits = append(s.Inits, kernels.Init{Slot: row.Slot, Generation: 1, Prompt: int32(p.context),
				Sampling: kernels.Sampling{TopP: 1, RepeatPenalty: 1}})
		}
		if int(row.Position) == p.context-1 || i == p.rows-1 {
			s.Samples = append(s.Samples, int32(i))
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

// pages returns the entries of the sequences' block tables, in groups that fit one step.
// Page 0 belongs to no sequence.
func (p pass) pages(l *model.StepMemory) [][]kernels.PageEntry {
	each := (p.context + l.PageTokens - 1) / l.PageTokens
	var all []kernels.PageEntry
	for slot := range p.sequences() {
		for i := range each {
			all = append(all, kernels.PageEntry{Slot: int32(slot), Index: int32(i), Page: int32(1 + slot*each + i)})
		}
	}
	return slices.Collect(slices.Chunk(all, kernels.MaxMoves))
}

// readBytes is the size of the buffer that readRate reads, larger than any cache.
var readBytes = map[string]int64{"host": 256 << 20, "cuda": 4 << 30}

// readRate returns the best of several measured rates at which the device reads memory, in
// 10⁹ bytes a second.
func (r *rig) readRate() (gbs float64, err error) {
	data, err := r.dev.Alloc(readBytes[r.dev.Name()])
	if err != nil {
		return 0, err
	}
	out, err := r.dev.Alloc(4)
	if err != nil {
		return 0, errors.Join(err, r.dev.Free(data))
	}
	// Untouched memory may be backed by a single page of zeros.
	err = r.run([]device.Op{kernels.Fill{Data: data, Value: 1}})
	var times []float64
	if err == nil {
		times, err = r.times([]device.Op{kernels.Read{Data: data, Out: out}})
	}
	err = errors.Join(err, r.dev.Free(out), r.dev.Free(data))
	if err != nil {
		return 0, err
	}
	return float64(data.Bytes()) / slices.Min(times) / 1e3, nil
}

// close frees the rig's stream and memory.
func (r *rig) close() error {
	return device.GiveBack(r.stream.Destroy, func() error { return r.memory.Free(r.dev) })
}

// kinds groups ops by kernel; names are in the order of their first launch.
func kinds(ops []device.Op) (names []string, by map[string][]device.Op) {
	by = map[string][]device.Op{}
	for _, op := range ops {
		name := op.Kernel()
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		by[name] = append(by[name], op)
	}
	return names, by
}

// stages counts the ops that take a descriptor from the ring.
func stages(ops []device.Op) (n uint64) {
	for _, op := range ops {
		if _, ok := op.(kernels.Stage); ok {
			n++
		}
	}
	return n
}
