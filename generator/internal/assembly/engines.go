package assembly

import (
	"errors"

	"reel/generator/internal/config"
	"reel/generator/internal/failure"
	"reel/generator/internal/hardware"
	"reel/generator/internal/server"
	"reel/generator/internal/weights"
)

// Engine is the engine of a loaded model. Run returns after Stop, or with the device's error.
type Engine interface {
	// Heartbeat calls done after the engine completes its next step.
	Heartbeat(done func())
	// Resize changes the most graphs that may exist, and the most bytes that they may take.
	Resize(maxGraphs int, bytes int64) error
	Run() error
	Stop()
}

// chatty is an engine that ends the process of its chat template when it ends.
type chatty struct {
	Engine
	end func()
}

// Run runs the engine.
func (c chatty) Run() error {
	defer c.end()
	return c.Engine.Run()
}

// WatchedEngine is an engine on a device that reads the weights from mapped files.
type WatchedEngine struct {
	Engine
	Weights *weights.Watch
	Fail    func(error) // ends the engine and its requests with an error
}

// watchWeights makes model and engine watch the files of c, if any is mapped.
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

// ModelChanged returns err with the protocol's error for clients; nil stays nil.
func ModelChanged(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(failure.Explain(err), err)
}

// MeasuredEngine is an engine on a GPU, and the reader of the GPU's state.
type MeasuredEngine struct {
	Engine
	GPU hardware.Reader
}

// Run runs the engine.
func (w MeasuredEngine) Run() error {
	defer w.GPU.Close()
	return w.Engine.Run()
}

// WatchGPU starts to read the GPU's state if o asks for metrics. Without NVML the metrics lack
// it.
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
