package assembly

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"reel.internal/reel/generator/internal/config"
)

// Settings that leave --cache-dir without a use are refused. A machine that has no memory for the host cache at the
// moment serves without files, and says so.
func TestPlanPageFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	for _, c := range []struct {
		name    string
		o       config.Options
		packed  bool
		planned int64
		refused bool
		files   bool
	}{
		{"none", config.Options{HostCache: 1 << 30}, true, 1 << 30, false, false},
		{"used", config.Options{CacheDir: dir, HostCache: 1 << 30}, false, 1 << 30, false, true},
		{"auto, on a GPU", config.Options{CacheDir: dir, HostCache: config.AutoHostCache}, true, 1 << 30, false, true},
		{"no memory", config.Options{CacheDir: dir, HostCache: config.AutoHostCache}, true, 0, false, false},
		{"auto, on the host", config.Options{CacheDir: dir, HostCache: config.AutoHostCache}, false, 0, true, false},
		{"no host cache", config.Options{CacheDir: dir}, true, 0, true, false},
		{"no cache", config.Options{CacheDir: dir, HostCache: 1 << 30, CacheScope: "off"}, true, 1 << 30, true, false},
		{"no directory", config.Options{CacheDir: "/dev/null", HostCache: 1 << 30}, true, 1 << 30, true, false},
	} {
		var l Prepared
		l.Hardware.Packed, l.EngineOptions.HostCache = c.packed, c.planned
		err := l.planPageFiles(c.o)
		if errors.Is(err, config.ErrConfig) != c.refused || (err != nil) != c.refused ||
			l.EngineOptions.Files != c.files {
			t.Errorf("%s: files %t, %v", c.name, l.EngineOptions.Files, err)
		}
		if warned := len(l.warnings) > 0; warned != (c.name == "no memory") {
			t.Errorf("%s: warnings %q", c.name, l.warnings)
		}
	}
}

// The end does not wait for a disk that hangs while the directory is opened.
func TestEndOfHungDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &background{cancel: cancel, ended: make(chan struct{})}
		p.end()
		if ctx.Err() == nil {
			t.Error("the opening goes on")
		}
		close(p.ended) // the disk answers
	})
}
