package assembly

import (
	"context"
	"crypto/sha256"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/kv/store"
)

// background reads the weights again beside a running engine, for the model's identity and for --cache-dir.
type background struct {
	model    Prepared
	opts     config.Options
	identity *identifier
	engine   *engine.Engine
	warn     func(string)
	store    *store.Store // nil until it is open
	cancel   context.CancelFunc
	ended    chan struct{} // closed when the weights are read, and the engine has the store or will have none
}

// readAgain reads all weights once serving is closed. Then identity is known and, with EngineOptions.Files, the engine
// keeps its pages in files. It says through warn what it cannot do: the engine then serves without. The caller calls
// end after the engine has ended.
func (l Prepared) readAgain(
	o config.Options, identity *identifier, e *engine.Engine, serving <-chan struct{}, warn func(string),
) *background {
	ctx, cancel := context.WithCancel(context.Background())
	p := &background{model: l, opts: o, identity: identity, engine: e, warn: warn, cancel: cancel,
		ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		select {
		case <-serving:
			p.run(ctx)
		case <-ctx.Done():
		}
	}()
	return p
}

func (p *background) run(ctx context.Context) {
	sum, err := p.model.weightsSum(ctx, p.opts)
	switch {
	case err == nil:
		p.identity.setWeights(sum)
	case ctx.Err() == nil:
		p.warn("welcome and status have no identity: " + err.Error())
	}
	if p.model.EngineOptions.Files {
		p.open(ctx, sum, err)
	}
}

// open opens the directory for the engine. sum is that of the weights, and err the error of reading them.
func (p *background) open(ctx context.Context, sum [sha256.Size]byte, err error) {
	var identity, draft [sha256.Size]byte
	if err == nil {
		draft, err = p.model.draftSum(ctx)
	}
	if err == nil {
		identity, err = p.model.pageIdentity(sum, draft)
	}
	if err == nil {
		p.store, err = store.Open(ctx, store.Options{Dir: p.opts.CacheDir, Bytes: p.opts.CacheDirBytes,
			Identity: identity, PageTokens: p.model.EngineOptions.PageTokens, PageBytes: p.model.pageBytes(),
			Warn: p.warn})
	}
	if err != nil && ctx.Err() == nil {
		p.warn("--cache-dir is not used: " + err.Error())
	}
	p.engine.UseStore(p.store)
}

// diskTime is how long the end waits for calls of the disk that open or close the directory. One that hangs may never
// return.
const diskTime = time.Second

// end ends the reading, and closes the directory or gives up opening it. If the disk hangs, the directory stays open
// until the process ends.
func (p *background) end() {
	p.cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if <-p.ended; p.store != nil {
			_ = p.store.Close() // nothing is lost: each file is complete
		}
	}()
	select {
	case <-closed:
	case <-time.After(diskTime):
	}
}
