package assembly

import (
	"context"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/kv/store"
)

// pageFiles is the directory of --cache-dir beside a running engine.
type pageFiles struct {
	model  Prepared
	opts   config.Options
	engine *engine.Engine
	warn   func(string)
	store  *store.Store // nil until it is open
	cancel context.CancelFunc
	ended  chan struct{} // closed when the engine has the store, or will have none
}

// planPageFiles sets EngineOptions.Files if the engine is to keep pages in --cache-dir. It makes the directory. It
// returns a [config.ErrConfig] if the generator cannot use the directory, or if other settings leave it without a use.
// A host cache for which the machine has no memory at the moment is only a warning.
func (l *Prepared) planPageFiles(o config.Options) error {
	if o.CacheDir == "" {
		return nil
	}
	none := o.HostCache == 0 || o.HostCache == config.AutoHostCache && !l.Hardware.Packed
	switch {
	case o.CacheScope == "off":
		return config.Refuse(config.ErrConfig, "--cache-dir keeps what --cache-scope off does not cache: leave one out")
	case none:
		return config.Refuse(config.ErrConfig, "--cache-dir needs a host cache, into which files are read: give "+
			"--host-cache, as in --host-cache 1GiB, or leave out --cache-dir")
	case l.EngineOptions.HostCache == 0:
		l.warnings = append(l.warnings, "--cache-dir is not used: the machine has no memory left for the host cache")
		return nil
	}
	if err := store.Prepare(o.CacheDir); err != nil {
		return config.Refuse(config.ErrConfig, "--cache-dir: %w", err)
	}
	l.EngineOptions.Files = true
	return nil
}

// keepPages lets an engine keep its pages in files. It opens the directory once serving is closed, after it has read
// all weights, and says so through warn if it cannot: the engine then serves without. It returns nil without
// EngineOptions.Files. The caller calls end after the engine has ended.
func (l Prepared) keepPages(o config.Options, e *engine.Engine, serving <-chan struct{}, warn func(string)) *pageFiles {
	if !l.EngineOptions.Files {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pageFiles{model: l, opts: o, engine: e, warn: warn, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		select {
		case <-serving:
			p.open(ctx)
		case <-ctx.Done():
		}
	}()
	return p
}

func (p *pageFiles) open(ctx context.Context) {
	identity, err := p.model.pageIdentity(ctx, p.opts)
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

// end closes the directory, or gives up opening it.
func (p *pageFiles) end() {
	p.cancel()
	if <-p.ended; p.store != nil {
		_ = p.store.Close() // nothing is lost: each file is complete
	}
}
