// Package daemon holds the parts of a running generator: the owner of the socket, the service
// manager, the engine's actor, reloads, metrics and the record of failures.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

// Loader loads the model that Options name. progress receives the share done, from 0 to 1, and
// the current activity. Errors that the operator can correct are [config.ErrConfig].
type Loader func(
	ctx context.Context, o config.Options, progress func(share float64, activity string),
) (*assembly.Loaded, error)

// EngineActor loads the model and runs its engine, as one actor of a run.Group.
type EngineActor struct {
	Server  *server.Server
	Load    Loader
	Options config.Options
	Log     zerolog.Logger
	// Manager receives the progress of the start, and the engine's signs of life.
	Manager Manager
	Journal Journal
	// Progress shows the progress of loading to the operator.
	Progress func(share float64, activity string)
	ctx      context.Context // cancelled by Interrupt
	cancel   context.CancelFunc
	began    time.Time // start of loading

	mu      sync.Mutex
	stopped bool
	loaded  *assembly.Loaded // nil until the model is loaded
}

// NewEngineActor prepares a for Execute and Interrupt. Its exported fields are set; Server may
// follow before Execute.
func NewEngineActor(a *EngineActor) *EngineActor {
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Execute loads and serves. It returns when the engine ends; clients are told the reason of a
// failure.
func (a *EngineActor) Execute() error {
	l, err := a.loadModel()
	if a.ctx.Err() != nil {
		return nil
	}
	if err != nil {
		a.Server.Fail(failure.Explain(err))
		return err
	}
	if !a.adopt(l) {
		return nil
	}
	if err := l.Model.Cause(a.run(l)); err != nil {
		a.Server.Fail(failure.Explain(err))
		awaitWriter(a.ctx, l.Weights, err, a.Manager, a.Log)
		return err
	}
	return nil
}

// run runs the engine. The server takes requests after the engine's first token; without that
// token run returns an error.
func (a *EngineActor) run(l *assembly.Loaded) error {
	ended, begun := make(chan struct{}), make(chan error, 1)
	go func() {
		err := a.begin(l, ended)
		begun <- err
		if err != nil {
			l.Engine.Stop()
			return
		}
		a.Manager.watch(l.Engine, ended)
	}()
	watchWeights(l, ended, a.Log)
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		logLines(l.Lines, ended, a.Log)
	}()
	err := l.Run()
	close(ended)
	<-logged
	if err == nil {
		err = <-begun
	}
	return err
}

// logLines logs the engine's warnings until ended is closed, and those that it left.
func logLines(lines <-chan string, ended <-chan struct{}, log zerolog.Logger) {
	for {
		select {
		case line := <-lines:
			log.Warn().Msg(line)
			continue
		case <-ended:
		}
		select {
		case line := <-lines:
			log.Warn().Msg(line)
		default:
			return
		}
	}
}

// begin requests the first token and then lets the server take requests.
func (a *EngineActor) begin(l *assembly.Loaded, ended <-chan struct{}) error {
	err := firstToken(l.Model, ended)
	if errors.Is(err, engine.ErrShutdown) || errors.Is(err, engine.ErrDraining) {
		return nil // the generator is already stopping
	}
	if err != nil {
		return fmt.Errorf("the model's first token: %w", a.explain(l, l.Model.Cause(err)))
	}
	a.Server.SetReady(l.Model)
	a.Journal.Clear()
	a.Manager.Say("READY=1", fmt.Sprintf("STATUS=ready: serves %s on %s", l.Model.Name, l.Model.Device))
	a.Log.Info().Str("model", l.Model.Name).Str("device", l.Model.Device).Int("context", l.Model.Limits.Context).
		Int("max_batch", l.Model.Limits.MaxBatch).
		Float64("took_ms", float64(time.Since(a.began).Microseconds())/1000).Msg("ready")
	if l.Serving != nil {
		l.Serving()
	}
	return nil
}

// loadModel loads the model. It returns early if the generator is to stop; a load that is still
// running then ends with the process.
func (a *EngineActor) loadModel() (*assembly.Loaded, error) {
	a.began = time.Now()
	notify := a.Manager.loading(time.Now)
	type result struct {
		loaded *assembly.Loaded
		err    error
	}
	done := make(chan result, 1)
	go func() {
		l, err := a.Load(a.ctx, a.Options, func(share float64, activity string) {
			a.Server.SetWaiting(a.waitsFor(activity)) // first, so that nobody is told of an old wait
			a.Server.SetProgress(share, activity)
			a.Progress(share, activity)
			notify(share, activity)
		})
		done <- result{l, err}
	}()
	select {
	case r := <-done:
		if r.err == nil {
			for _, warning := range r.loaded.Warnings {
				a.Log.Warn().Msg(warning)
			}
			logGraphs(a.Log, r.loaded.Model.Engine.Stats().Graphs)
			logMemory(a.Log, r.loaded.Model)
		}
		return r.loaded, r.err
	case <-a.ctx.Done():
		return nil, a.ctx.Err()
	}
}

// waitsFor returns the device that a start with this activity waits for, or "".
func (a *EngineActor) waitsFor(activity string) string {
	if strings.HasPrefix(activity, config.WaitsForDevice) {
		return a.Options.Device
	}
	return ""
}

// logGraphs logs the cost of the graphs captured at start.
func logGraphs(log zerolog.Logger, g protocol.GraphPool) {
	log.Info().Uint64("graphs", g.Precaptured).Float64("took_ms", 1000*g.CaptureS).
		Float64("median_ms", g.CaptureMedianMS).Int64("bytes_each", g.GraphBytes).
		Uint64("failed", g.Failed).Msg("graphs captured")
}

// logMemory logs the planned memory beside the measured.
func logMemory(log zerolog.Logger, m server.Model) {
	if m.Taken == nil {
		return
	}
	taken, by := m.Taken()
	log.Info().Str("planned", plan.Size(m.Planned)).Str("taken", plan.Size(taken)).Str("by", by).
		Int64("planned_bytes", m.Planned).Int64("taken_bytes", taken).Msg("memory")
}

// adopt stores the loaded model for Interrupt. It reports false if the actor was interrupted before.
func (a *EngineActor) adopt(l *assembly.Loaded) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	a.loaded = l
	return true
}

// Flush waits until the KV pages of prompts are in files, if they are kept there, or until ctx ends.
func (a *EngineActor) Flush(ctx context.Context) {
	if l := a.model(); l != nil && l.Flush != nil {
		l.Flush(ctx)
	}
}

// model returns the loaded model, or nil while it is loading.
func (a *EngineActor) model() *assembly.Loaded {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.loaded
}

// Interrupt ends loading and stops the engine.
func (a *EngineActor) Interrupt(error) {
	a.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.loaded != nil {
		a.loaded.Engine.Stop()
	}
}
