package assembly

import (
	"errors"

	"reel/generator/internal/config"
	"reel/generator/internal/failure"
	"reel/generator/internal/hardware"
	"reel/generator/internal/server"
	"reel/generator/internal/weights"
)

// Engine is a loaded model's engine. Run returns after Stop, or with the
// device's error.
type Engine interface {
	// Heartbeat calls done after the engine completes its next step.
	Heartbeat(done func())
	// Resize changes how many graphs there may be, and the bytes that they take.
	Resize(maxGraphs int, bytes int64) error
	Run() error
	Stop()
}

// chatty is an engine that ends the template's process with itself.
type chatty struct {
	Engine
	end func()
}

// Run runs the engine.
func (c chatty) Run() error {
	defer c.end()
	return c.Engine.Run()
}

// WatchedEngine is an engine whose weights are read where their files are mapped.
type WatchedEngine struct {
	Engine
	Weights *weights.Watch
	Fail    func(error) // ends the engine and its requests
}

// watchWeights has model and engine watch the files of c, where any is mapped.
func watchWeights(
	c *weights.Checkpoint, m server.Model, e Engine, fail func(error),
) (server.Model, Engine) {
	w := c.Watch()
	if w == nil {
		return m, e
	}
	m.Verify = func() error { return ModelChanged(w.Verify()) }
	return m, WatchedEngine{e, w, fail}
}

// ModelChanged is err as clients hear of it; nil stays nil.
func ModelChanged(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(failure.Explain(err), err)
}

// MeasuredEngine is an engine on a GPU that is read while it runs.
type MeasuredEngine struct {
	Engine
	GPU hardware.Reader
}

// Run runs the engine.
func (w MeasuredEngine) Run() error {
	defer w.GPU.Close()
	return w.Engine.Run()
}

// WatchGPU reads the hardware beside the engine where that was asked for. Metrics
// lack what a driver without NVML cannot tell; requests are served all the same.
func WatchGPU(h hardware.Hardware, e Engine, o config.Options) Engine {
	if o.Metrics == "" || h.OpenReader == nil {
		return e
	}
	r, err := h.OpenReader()
	if err != nil {
		return e
	}
	return MeasuredEngine{e, r}
}
