package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"reel/generator/internal/assembly"
	"reel/generator/internal/config"
	"reel/generator/internal/engine"
	"reel/generator/internal/failure"
	"reel/generator/internal/plan"
	"reel/generator/internal/server"
	"reel/protocol"
)

// Loader loads the model that Options name. progress takes a share, 0 to 1, and
// what is being done. An error that is errConfig is the operator's to mend.
type Loader func(ctx context.Context, o config.Options, progress func(float64, string)) (server.Model, assembly.Engine, error)

// EngineActor loads the model and runs its engine, as one member of the group.
type EngineActor struct {
	Server  *server.Server
	Load    Loader
	Options config.Options
	Log     zerolog.Logger
	// Manager hears how far the start is, and that the engine goes on.
	Manager Manager
	Journal Journal
	// Progress shows the operator how far loading is.
	Progress func(share float64, what string)
	ctx      context.Context // of the loading
	cancel   context.CancelFunc
	began    time.Time // of the loading

	mu      sync.Mutex
	stopped bool
	runner  assembly.Engine // once loaded
}

// NewEngineActor completes a: its loading can be cancelled from now on.
func NewEngineActor(a *EngineActor) *EngineActor {
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Execute loads, serves, and returns when the engine ends. Clients are told why
// where that is a failure.
func (a *EngineActor) Execute() error {
	l := a.loaded()
	if a.ctx.Err() != nil {
		return nil
	}
	if l.err != nil {
		a.Server.Fail(failure.Explain(l.err))
		return l.err
	}
	if !a.adopt(l.runner) {
		return nil
	}
	if err := l.model.Cause(a.run(l)); err != nil {
		a.Server.Fail(failure.Explain(err))
		a.awaitWriter(l.runner, err)
		return err
	}
	return nil
}

// run runs the engine. Requests are taken once it has drawn a first token: what
// cannot draw one ends here.
func (a *EngineActor) run(l loading) error {
	ended, begun := make(chan struct{}), make(chan error, 1)
	go func() {
		err := a.begin(l, ended)
		begun <- err
		if err != nil {
			l.runner.Stop()
			return
		}
		a.Manager.watch(l.runner, ended)
	}()
	a.watchWeights(l.runner, ended)
	err := l.runner.Run()
	close(ended)
	if err == nil {
		err = <-begun
	}
	return err
}

// begin draws a token and then serves.
func (a *EngineActor) begin(l loading, ended <-chan struct{}) error {
	err := firstToken(l.model.Engine, ended)
	if errors.Is(err, engine.ErrShutdown) || errors.Is(err, engine.ErrDraining) {
		return nil // it is to stop already
	}
	if err != nil {
		return fmt.Errorf("the model's first token: %w", l.model.Cause(err))
	}
	a.Server.SetReady(l.model)
	a.Journal.Clear()
	a.Manager.Say("READY=1", fmt.Sprintf("STATUS=ready: serves %s on %s", l.model.Name, l.model.Device))
	a.Log.Info().Str("model", l.model.Name).Str("device", l.model.Device).Int("context", l.model.Limits.Context).
		Int("max_batch", l.model.Limits.MaxBatch).Float64("took_ms", float64(time.Since(a.began).Microseconds())/1000).Msg("ready")
	return nil
}

// loading is what a load came to.
type loading struct {
	model  server.Model
	runner assembly.Engine
	err    error
}

// loaded loads the model. It returns early where the generator is to stop: a
// load that is under way then ends with the process.
func (a *EngineActor) loaded() loading {
	a.began = time.Now()
	told := a.Manager.loading(time.Now)
	done := make(chan loading, 1)
	go func() {
		m, runner, err := a.Load(a.ctx, a.Options, func(share float64, what string) {
			a.Server.SetProgress(share, what)
			a.Progress(share, what)
			told(share, what)
		})
		done <- loading{m, runner, err}
	}()
	select {
	case l := <-done:
		if l.err == nil {
			logGraphs(a.Log, l.model.Engine.Stats().Graphs)
			logMemory(a.Log, l.model)
		}
		return l
	case <-a.ctx.Done():
		return loading{err: a.ctx.Err()}
	}
}

// logGraphs tells what the graphs of the start took.
func logGraphs(log zerolog.Logger, g protocol.GraphPool) {
	log.Info().Uint64("graphs", g.Precaptured).Float64("took_ms", 1000*g.CaptureS).Float64("median_ms", g.CaptureMedianMS).
		Int64("bytes_each", g.GraphBytes).Uint64("failed", g.Failed).Msg("graphs captured")
}

// logMemory tells what the plan said beside what was taken.
func logMemory(log zerolog.Logger, m server.Model) {
	if m.Taken == nil {
		return
	}
	taken, by := m.Taken()
	log.Info().Str("planned", plan.GiB(m.Planned)).Str("taken", plan.GiB(taken)).Str("by", by).Int64("planned_bytes", m.Planned).Int64("taken_bytes", taken).Msg("memory")
}

// adopt makes runner the one that interrupt stops, unless that has been already.
func (a *EngineActor) adopt(runner assembly.Engine) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	a.runner = runner
	return true
}

func (a *EngineActor) Interrupt(error) {
	a.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.runner != nil {
		a.runner.Stop()
	}
}
