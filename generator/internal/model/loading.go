package model

import (
	"sync"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Load checks the tensors of a checkpoint against c and loads them onto dev. It calls
// progress with the fraction of the parameters that is loaded, 0 to 1. A device may read
// the tensors' data in place, so the data must stay valid and unchanged until
// [Model.Free]. Errors: those of [Config.CheckTensors], then the device's. After an error
// nothing stays allocated.
func Load(dev device.Device, c Config, tensors Tensors, progress func(float64)) (*Model, error) {
	l, err := BeginLoad(dev, c, tensors, progress)
	if err != nil {
		return nil, err
	}
	if err = l.Wait(); err != nil {
		return nil, device.GiveBack(func() error { return err }, func() error { return l.Model.Free(dev) })
	}
	return l.Model, nil
}

// Loading is a model of which a device that packs weights may still read some.
type Loading struct {
	// Model has all its memory. Until Wait returns its weights are zeros or their values: passes may be run and
	// captured, and mean nothing.
	Model   *Model
	weights *kernels.Loader
}

// BeginLoad is [Load] that allocates memory and reads vectors alone: Start reads the rest on other goroutines, and Wait
// waits for it. They call progress, one call at a time. The tensors' data must stay until then at least.
func BeginLoad(dev device.Device, c Config, tensors Tensors, progress func(float64)) (*Loading, error) {
	if err := c.CheckTensors(tensors); err != nil {
		return nil, err
	}
	c = c.withFactors()
	m := &Model{Config: c, layers: make([]layer, c.Layers)}
	l := loader{
		weights: kernels.NewLoader(dev), dev: dev, tensors: tensors, model: m,
		counts: counter{total: c.Parameters(), progress: progress},
	}
	l.weights.Read = l.counts.add
	if err := weights.Guard(func() error { l.load(); return l.err }); err != nil {
		l.weights.Cancel(err)
		return nil, device.GiveBack(l.weights.Close, func() error { return m.Free(dev) })
	}
	return &Loading{Model: m, weights: l.weights}, nil
}

// Start begins to read weights.
func (l *Loading) Start() { l.weights.Start() }

// Wait returns once all weights are on the device, or with the first failure. It is called once; the caller then frees
// the model.
func (l *Loading) Wait() error { return l.weights.Close() }

// Cancel has Wait return err soon, unless all is read. Any goroutine may call it.
func (l *Loading) Cancel(err error) { l.weights.Cancel(err) }

// counter counts the elements that are loaded.
type counter struct {
	mu          sync.Mutex
	done, total int64
	progress    func(float64) // called one call at a time
}

func (c *counter) add(elements int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += elements
	c.progress(min(1, float64(c.done)/float64(c.total)))
}
