package assembly

import (
	"context"
	"errors"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/generator/internal/weights"
)

// Engine is the part of an engine that the daemon drives. [engine.Engine] implements it.
type Engine interface {
	// Heartbeat calls done after the engine completes its next step.
	Heartbeat(done func())
	// Resize changes the most graphs that may exist, and the most bytes that they may take.
	Resize(maxGraphs int, bytes int64) error
	// Run returns after Stop, or with the device's error.
	Run() error
	Stop()
}

// Loaded is a model with its engine, ready to be served.
type Loaded struct {
	Model   server.Model
	Engine  Engine
	Fail    func(error)     // ends the engine and its requests with an error
	Weights *weights.Watch  // watches the mapped files; nil if the device has copies
	GPU     hardware.Reader // of the GPU's state; nil without a GPU or without --metrics
	// NotFinite searches the weights, after a first token that is not a number. It returns an error
	// that names a tensor with a NaN or an infinity, or nil if it finds none.
	NotFinite func(ctx context.Context) error
	// Warnings are for the log: parts of the model's directory that are missing or not used.
	Warnings []string
	// Lines receives the engine's warnings for the log while it runs; nil: there are none.
	Lines <-chan string
	// Serving begins the work that waits until requests are taken: pinning of the host tier. nil: there is none.
	Serving func()
	// Flush waits until the KV pages of prompts are in files, or until ctx ends; nil: they are not kept.
	Flush      func(ctx context.Context)
	background *background // nil in tests
	chat       *templates  // nil: there is no chat template, and none can be set
	// endFormats ends the program that follows formats; nil: the model has no tokenizer.
	endFormats func()
}

// Run runs the engine. When the engine ends, it ends the processes of the chat template and of formats, and closes GPU.
func (l *Loaded) Run() error {
	if l.GPU != nil {
		defer l.GPU.Close()
	}
	if l.chat != nil {
		defer l.chat.end()
	}
	if l.endFormats != nil {
		defer l.endFormats()
	}
	if l.background != nil {
		defer l.background.end()
	}
	return l.Engine.Run()
}

// maxLines is how many warnings of the engine may wait for the log.
const maxLines = 16

// warnTo returns a function that sends a line to the log, or drops it if too many wait. It never waits.
func warnTo(lines chan<- string) func(line string) {
	return func(line string) {
		select {
		case lines <- line:
		default:
		}
	}
}

// ModelChanged returns err with the protocol's error for clients; nil stays nil.
func ModelChanged(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(failure.Explain(err), err)
}

// ReadGPU starts to read the GPU's state if o asks for metrics. It returns nil without a GPU or
// without NVML; the metrics then lack that state.
func ReadGPU(h hardware.Hardware, o config.Options) hardware.Reader {
	if o.Metrics == "" || h.OpenReader == nil {
		return nil
	}
	r, err := h.OpenReader()
	if err != nil {
		return nil
	}
	return r
}
