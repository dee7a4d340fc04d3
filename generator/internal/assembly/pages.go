package assembly

import (
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/kv/store"
)

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
