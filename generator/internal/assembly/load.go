// Package assembly makes a model ready to be served: it opens a checkpoint, plans its memory,
// loads the weights, and makes the engine, the tokenizer and the chat template.
package assembly

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/generator/internal/tokenizer"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// EmbeddedName is the name of the embedded model.
const EmbeddedName = "reel-tiny"

// Load loads the model that o names onto its device and makes its engine. progress receives
// the share done, from 0 to 1, and the current activity. Errors that the operator can correct
// are [config.ErrConfig].
func Load(_ context.Context, o config.Options, progress func(float64, string)) (*Loaded, error) {
	template, err := readTemplate(o.ChatTemplate, chatWorker)
	if err != nil {
		return nil, config.OfKind(err, config.ErrConfig)
	}
	l, err := beginOn(hardware.Open, o, progress)
	if err != nil {
		return nil, err
	}
	o = l.options
	opts := l.EngineOptions
	opts.Progress = func(share float64, _ string) { l.capturing(share) }
	boundHeap(l.heapRoom)
	serving, lines := make(chan struct{}), make(chan string, maxLines)
	opts.PinAfter, opts.Warn = serving, warnTo(lines)
	e, err := l.newEngine(opts)
	if err != nil {
		return nil, err
	}
	loaded := &Loaded{Engine: e, Fail: e.Fail, Weights: l.watch(), GPU: ReadGPU(l.Hardware, o),
		Warnings: l.warnings, Lines: lines, Serving: sync.OnceFunc(func() { close(serving) })}
	identity := &identifier{parts: l.tokenIdentity()}
	loaded.background = l.readAgain(o, identity, e, serving, opts.Warn)
	if l.EngineOptions.Files {
		loaded.Flush = e.Flush
	}
	loaded.Model = server.Model{Name: l.Name, Device: l.Hardware.Name(), Engine: e,
		Tokenizer: l.tokenizer, NewDecoder: l.decoder, Reread: rereadMode(o, l.Hardware.Packed),
		Limits: protocol.Limits{Context: opts.Context, MaxBatch: opts.MaxBatch, Vocab: l.Model.Config.Vocab,
			Queue: opts.MaxQueue},
		Shape: ShapeOf(l.Model), Machine: l.Hardware.Machine, Identity: identity.String,
		Planned: l.sizes.AtStart(), Taken: l.Hardware.Taken, Memory: l.planned(),
		GPUs: l.Model.Config.Ranks, Simulated: !l.Hardware.Packed}
	loaded.NotFinite = func(ctx context.Context) error { return l.notFinite(ctx, o) }
	if w := loaded.Weights; w != nil {
		loaded.Model.Verify = func() error { return ModelChanged(w.Verify()) }
	}
	if loaded.Model.Embedding = embeddingOf(l.Model.Config); loaded.Model.Embedding != nil {
		return loaded, nil // without templates and formats, which are of texts that a model writes
	}
	if err := loaded.startFormats(l.tokenizer, l.Model.Config, opts.Warn); err != nil {
		return nil, err
	}
	_, noText := l.tokenizer.(idsOnly)
	loaded.startChat(&templates{own: l.chat, defaults: l.chatDefaults, identity: identity, worker: chatWorker, noText: noText,
		encode: l.tokenizer.EncodeMarked, decoder: l.decoder}, template)
	return loaded, nil
}

// newEngine makes the engine, and waits for the weights too. They are read while graphs are captured, which needs the
// weights' places alone; and not before the engine has taken its memory, which takes longer beside that.
func (l *Prepared) newEngine(opts engine.Options) (*engine.Engine, error) {
	opts.Allocated = l.reading.Start
	e, err := engine.New(l.Hardware.Device, l.Model, opts)
	failed := l.finish(err)
	switch {
	case err != nil:
		return nil, errors.Join(noMemory(l.Hardware, Place(l.options.Model), err), l.weights.Unchanged())
	case failed != nil:
		return nil, device.GiveBack(func() error { return failed }, e.Close, func() error { return l.Model.Free(l.Hardware) })
	}
	return e, nil
}

// rereadMode returns the mode of --reread. The host's processors are left to others by default.
func rereadMode(o config.Options, onGPU bool) server.RereadMode {
	switch {
	case o.CacheScope == "off":
		return server.RereadOff
	case o.Reread != "auto" && o.Reread != "":
		return server.RereadMode(o.Reread)
	case onGPU:
		return server.RereadChat
	}
	return server.RereadOff
}

// Prepared is a model on its device, and the plan of its engine.
type Prepared struct {
	Name          string
	options       config.Options // with the model's path in place of a name, see Locate
	Hardware      hardware.Hardware
	tokenizer     server.Tokenizer
	decoder       func(after []int32) server.Decoder
	tokenizerSum  [sha256.Size]byte // of tokenizer.json
	chat          chat.Source       // the checkpoint's chat template, empty if it has none, and its special tokens
	chatDefaults  protocol.Sampling
	Model         *model.Model
	reading       *reading            // of Model
	capturing     func(share float64) // receives the progress of the engine's captures
	weights       *weights.Checkpoint // closed if the device has a copy
	files         []weights.FileState // of the weights, before the device read them
	draft         *draftModel         // nil: there is none
	sizes         plan.Sizes
	EngineOptions engine.Options
	warnings      []string
	heapRoom      int64 // bytes by which Go's heap may grow after planning
}

// Prepare opens the device and loads the model that o names, without an engine. See [Load].
func Prepare(o config.Options, progress func(float64, string)) (Prepared, error) {
	return prepareOn(hardware.Open, o, progress)
}

// prepareOn is [Prepare] with what opens the device.
func prepareOn(
	open func(config.Options) (hardware.Hardware, error), o config.Options,
	progress func(float64, string),
) (Prepared, error) {
	l, err := beginOn(open, o, progress)
	if err != nil {
		return l, err
	}
	if err = l.finish(nil); err != nil {
		return l, device.GiveBack(func() error { return err }, func() error { return l.Model.Free(l.Hardware) })
	}
	return l, nil
}

// beginOn is prepareOn without waiting for the model's weights: [Prepared.finish] does. It allocates nothing on the
// device until a plan fits.
func beginOn(
	open func(config.Options) (hardware.Hardware, error), o config.Options,
	progress func(float64, string),
) (l Prepared, err error) {
	files, err := l.locate(o)
	if err != nil {
		return l, err
	}
	o = l.options
	progress(0, "reading the tokenizer")
	limits, _ := memlimit.Here() // unknown limits bound nothing
	if err = checkStart(files, limits); err != nil {
		return l, config.Refuse(config.ErrConfig, "%w", err)
	}
	s, err := l.open(files, limits)
	if err != nil {
		return l, CannotServe(Place(o.Model), err)
	}
	if s.config, err = plan.Divide(s.config, o); err != nil {
		return l, errors.Join(err, s.tensors.Close())
	}
	if l.draft, err = l.openDraft(s.config, limits); err != nil {
		return l, errors.Join(err, s.tensors.Close())
	}
	if err = l.planOn(open, s, limits, progress); err != nil {
		return l, errors.Join(err, s.tensors.Close(), l.draft.close())
	}
	t := together{report: progress, done: 0.1}
	most := 0.7
	if l.draft != nil {
		most = 0.6
		if err = l.loadDraft(t.part(0.1, "loading the draft model's weights")); err != nil {
			return l, errors.Join(err, s.tensors.Close())
		}
	}
	reading := t.part(most, "loading the weights")
	l.capturing = t.part(0.2, "capturing graphs")
	reading(0)
	return l, l.begin(s, reading)
}

// planOn opens the device and plans the use of its memory.
func (l *Prepared) planOn(open func(config.Options) (hardware.Hardware, error), s source, limits []memlimit.Limit,
	progress func(float64, string),
) error {
	o := l.options
	if err := hardware.Patience.WhileBusy(progress, func() (err error) {
		l.Hardware, err = open(o)
		return err
	}); err != nil {
		return err
	}
	if o.Guard {
		l.Hardware.Device = device.NewGuard(l.Hardware.Device)
	}
	use := s.use().On(s.config.Ranks)
	l.draft.addTo(&use)
	if err := hardware.Patience.WhileBusy(progress, settled(func() (int64, error) {
		return l.fit(plan.Planner{Config: s.config, Profile: l.Hardware.Profile, Options: o, Limits: limits,
			Formats: use.Formats, Ordered: use.Ordered, Draft: use.Draft}, use)
	})); err != nil {
		return err
	}
	return l.planPageFiles(o)
}

// settled returns fit for a loop of tries. After a wait it goes on once the bytes that fit finds free grow no more: a
// program that leaves the device frees its memory piece by piece, and a plan for the first piece would be too small.
func settled(fit func() (free int64, err error)) func() error {
	waited, last := false, int64(0)
	return func() error {
		free, err := fit()
		grows := waited && free > last
		waited, last = waited || errors.Is(err, device.ErrBusy), free
		if err == nil && grows {
			return fmt.Errorf("%w: its memory is being freed", device.ErrBusy)
		}
		return err
	}
}

// begin starts to load the model's weights.
func (l *Prepared) begin(s source, progress func(float64)) (err error) {
	s.config.Context = l.EngineOptions.Context
	l.warnings = append(l.warnings, s.remarks()...)
	l.weights = s.tensors
	if l.files, err = s.tensors.State(); err != nil {
		return errors.Join(CannotServe(Place(l.options.Model), err), s.tensors.Close())
	}
	if l.reading, err = s.begin(l.Hardware, s.config, !l.Hardware.Packed, progress); err != nil {
		return CannotServe(Place(l.options.Model), err)
	}
	l.Model = l.reading.Model
	return nil
}

// finish waits until the model's weights are loaded. If err is not nil, it ends the loading instead.
func (l *Prepared) finish(err error) error {
	if err != nil {
		l.reading.Cancel(err)
	}
	if err = l.reading.wait(); err != nil {
		return CannotServe(Place(l.options.Model), err)
	}
	return nil
}

// locate returns the model's files, and sets its name and its path.
func (l *Prepared) locate(o config.Options) (files fs.FS, err error) {
	var note string
	if l.options, note, err = Locate(o); err != nil {
		return nil, err
	}
	if note != "" {
		l.warnings = append(l.warnings, note)
	}
	files, l.Name, err = ModelFiles(l.options)
	return files, err
}

// fit plans the use of the device's memory. A model that does not fit is [config.ErrConfig].
// If it would fit without other programs, the error is [device.ErrBusy] instead. free is the bytes that it may take.
func (l *Prepared) fit(p plan.Planner, use plan.WeightUse) (free int64, err error) {
	b, err := l.Hardware.Budget(use)
	if err != nil {
		return 0, err
	}
	l.sizes, l.EngineOptions, err = p.Plan(b.Bytes)
	err = b.Explain(err)
	if err == nil {
		l.warnings = append(l.warnings, p.HostCacheCut(l.sizes)...)
	}
	l.heapRoom = plan.ProgramRoom + l.sizes.Graphs + max(0, b.Hard-l.sizes.Total())
	if !errors.Is(err, config.ErrNoRoom) {
		if err != nil {
			err = config.Refuse(config.ErrConfig, "%w", err)
		}
		return b.Bytes, err
	}
	if l.Hardware.Whole != nil {
		whole, failed := l.Hardware.Whole()
		if failed != nil {
			return b.Bytes, failed
		}
		if _, _, e := p.Plan(whole); e == nil {
			return b.Bytes, fmt.Errorf("%w: %w", device.ErrBusy, err)
		}
	}
	return b.Bytes, config.Refuse(config.ErrConfig, "%w", err)
}

// open reads tokenizer, config and headers, and checks that they belong together.
func (l *Prepared) open(files fs.FS, limits []memlimit.Limit) (source, error) {
	if gguf, ok := files.(weights.GGUF); ok {
		return l.openGGUF(gguf, limits)
	}
	vocab, err := l.readTokenizer(files)
	if err != nil {
		return source{}, err
	}
	s, err := openSource(files)
	if err == nil && vocab > s.config.Vocab {
		mismatch := fmt.Errorf("tokenizer.json has %d tokens, added ones not counted, and config.json a vocabulary "+
			"of %d: take both from one checkpoint", vocab, s.config.Vocab)
		err = errors.Join(mismatch, s.tensors.Close())
	}
	if err == nil {
		var warnings []string
		l.chatDefaults, warnings = chatDefaults(files, s.config.Vocab)
		if l.chat.Template != "" || l.options.ChatTemplate != "" {
			l.warnings = append(l.warnings, warnings...)
		}
	}
	return s, err
}

// readTokenizer returns the number of the tokenizer's ids without added tokens, which may lack a
// row in the embedding. A model without tokenizer.json takes prompts as token ids.
func (l *Prepared) readTokenizer(files fs.FS) (vocab int, err error) {
	if _, err := fs.Stat(files, "tokenizer.json"); errors.Is(err, fs.ErrNotExist) {
		l.tokenizer, l.decoder = idsOnly{}, func([]int32) server.Decoder { return idsOnly{} }
		l.warnings = append(l.warnings, noTokenizer)
		return 0, nil
	}
	t, err := tokenizer.Load(files)
	if err != nil {
		return 0, err
	}
	l.tokenizer, l.decoder = t, func(after []int32) server.Decoder { return t.NewDecoder(after) }
	if l.tokenizerSum, err = tokenizerSum(files); err != nil {
		return 0, err
	}
	l.chat, err = chatSource(files)
	return t.ModelVocab(), err
}

// ShapeOf returns a model's shape for status.
func ShapeOf(m *model.Model) protocol.Shape {
	c := m.Config
	return protocol.Shape{Layers: c.Layers, Hidden: c.Hidden, Inner: c.Inner, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim:     c.HeadDim,
		WeightBytes: m.WeightBytes(), StepBytes: m.StepBytes(), RoPE: c.RoPE.String()}
}

// planned returns the planned memory by kind. Weights that are read from a mapped file count
// as pages of the page cache.
func (l Prepared) planned() []protocol.MemoryUse {
	s := l.sizes
	weights := s.WeightBytes() + s.ReadBytes()
	list := []protocol.MemoryUse{{Kind: protocol.MemoryWeights, Planned: weights},
		{Kind: protocol.MemoryKV, Planned: s.KVPool()},
		{Kind: protocol.MemoryArena, Planned: s.Arena}, {Kind: protocol.MemoryGraphs, Planned: s.Graphs}}
	if s.Overhead > 0 { // only of a GPU
		list = append(list, protocol.MemoryUse{Kind: protocol.MemoryOther, Planned: s.Overhead})
	}
	return list
}
