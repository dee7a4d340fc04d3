package daemon

import (
	"net"

	"github.com/oklog/run"
	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/gpu"
	"reel.internal/reel/generator/internal/metrics"
)

// ListenMetrics listens at the address of --metrics. It returns nil for an empty address.
func ListenMetrics(address string, log zerolog.Logger) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := metrics.Listen(address)
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--metrics %s: %w", address, err)
	}
	log.Info().Str("address", address).Msg("metrics can be asked for")
	return l, nil
}

// AddMetrics adds an actor to the group that serves metrics on l. It adds none if l is nil.
func AddMetrics(g *run.Group, m *metrics.Metrics, l net.Listener, log zerolog.Logger) {
	if l != nil {
		g.Add(func() error { return m.Serve(l, log) }, func(error) { _ = l.Close() })
	}
}

// Readings returns the state of each GPU, or nil without one or while the model is loading.
func (a *EngineActor) Readings() []gpu.Reading {
	a.mu.Lock()
	l := a.loaded
	a.mu.Unlock()
	if l == nil || l.GPU == nil {
		return nil
	}
	return l.GPU.Read()
}
