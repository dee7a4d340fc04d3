// Package gateway serves generators over HTTP, as OpenAI's, Anthropic's and Ollama's clients speak it. It
// is a client like others: it holds no model, and its end harms no generator.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Options configure a Gateway. A zero value means the default that the field names.
type Options struct {
	Listen     []string    // addresses: HOST:PORT or unix:PATH; none: 127.0.0.1:8080
	Generators []Generator // none: the one that package client finds
	Keys       *Keys       // who may ask; nil: the users whom the kernel names
	TLSCert    string      // file of the certificates, with TLSKey; empty: plain HTTP
	TLSKey     string      // file of the certificate's key
	AllowHosts []string    // further names that a request's Host may have
	// AllowOrigins are the origins, such as https://app.example, whose pages may ask.
	AllowOrigins []string
	Aliases      map[string]string // further names of models
	HealthListen []string          // addresses that serve /health, /ready and /metrics without a key
	OpenLoopback bool              // without Keys, take loopback connections of every user
	Ping         time.Duration     // between two signs of life in a silent stream; 0: 30 s
	Drain        time.Duration     // for running requests at the end; 0: 30 s
	Queue        int               // requests that may wait for a generator's place; 0: 1,024
	Stay         time.Duration     // after its last request, before a model leaves its device for another; 0: 30 s
	Logger       zerolog.Logger
}

// Bounds of the gateway, and [usualTimes]. SECURITY.md lists them.
const (
	maxConnections = 4096            // half of them of one user
	maxHeader      = 32 << 10        // bytes of a request's line and headers
	closeTime      = 2 * time.Second // for clients to read their last bytes
)

// times bound what a client may take. Tests shorten them.
type times struct {
	header time.Duration // to send a request's line and headers
	body   time.Duration // to send a request with its body
	idle   time.Duration // between two requests of a connection
	stall  time.Duration // to read what was written
}

var usualTimes = times{header: 10 * time.Second, body: 30 * time.Second, idle: 2 * time.Minute, stall: 20 * time.Second}

// Gateway serves HTTP on its addresses. Make one with [New].
type Gateway struct {
	o           Options
	log         zerolog.Logger
	failures    zerolog.Logger // log, with a bound on lines
	hosts       hosts
	backends    *backends
	connections *shares
	bodies      *shares // bytes of large bodies in memory
	listeners   []net.Listener
	health      []net.Listener
	draining    atomic.Bool
	running     atomic.Int64 // requests that are being served
	metrics     *metrics
	times       times
}

// ErrConfig means that a setting has to be corrected.
var ErrConfig = errors.New("bad configuration")

// New checks the settings and listens. Errors: [ErrConfig], or those of the system.
func New(o Options) (*Gateway, error) {
	o = o.withDefaults()
	hosts, err := newHosts(o)
	if err != nil {
		return nil, err
	}
	g := &Gateway{o: o, log: o.Logger, failures: o.Logger.Sample(&zerolog.BurstSampler{Burst: 20, Period: time.Minute}),
		hosts: hosts, times: usualTimes,
		connections: newShares(maxConnections), bodies: newShares(maxBodies)}
	if g.backends, err = newBackends(o); err != nil {
		return nil, err
	}
	g.metrics = newMetrics(g)
	if err := g.listen(); err != nil {
		g.closeListeners()
		return nil, err
	}
	return g, nil
}

func (o Options) withDefaults() Options {
	if len(o.Listen) == 0 {
		o.Listen = []string{"127.0.0.1:8080"}
	}
	if len(o.Generators) == 0 {
		o.Generators = []Generator{{}}
	}
	if o.Ping == 0 {
		o.Ping = 30 * time.Second
	}
	if o.Drain == 0 {
		o.Drain = 30 * time.Second
	}
	if o.Queue == 0 {
		o.Queue = 1024
	}
	if o.Stay == 0 {
		o.Stay = usualStay
	}
	return o
}

// Serve serves until ctx ends. Then it refuses new requests and gives those that run Options.Drain
// to finish; patience ends that time early. It returns an error if a listener fails.
func (g *Gateway) Serve(ctx, patience context.Context) error {
	base, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	servers := g.servers(base)
	failed := make(chan error, len(servers))
	for _, s := range servers {
		go func() { failed <- s.serve() }()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		g.drain(patience)
	}
	cut(errShutdown)
	closing, done := context.WithTimeout(context.Background(), closeTime)
	defer done()
	for _, s := range servers {
		if s.Shutdown(closing) != nil {
			_ = s.Close()
		}
	}
	g.backends.close()
	return err
}

// drain waits for the running requests.
func (g *Gateway) drain(patience context.Context) {
	g.draining.Store(true)
	ctx, stop := context.WithTimeout(patience, g.o.Drain)
	defer stop()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for g.running.Load() > 0 {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// boundServer is a server with the listener that it serves.
type boundServer struct {
	*http.Server
	l net.Listener
}

// serve serves until the server is shut down.
func (s boundServer) serve() error {
	if err := s.Serve(s.l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", s.l.Addr(), err)
	}
	return nil
}

// servers returns a server for each listener.
func (g *Gateway) servers(base context.Context) (list []boundServer) {
	routes, health := g.routes(), g.healthRoutes()
	for _, l := range g.listeners {
		list = append(list, boundServer{g.server(base, routes), l})
	}
	for _, l := range g.health {
		list = append(list, boundServer{g.server(base, health), l})
	}
	return list
}

// server returns an HTTP server with all its bounds. Writes have a bound of their own, because a stream
// may take any time.
func (g *Gateway) server(base context.Context, h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: h, Protocols: &protocols, ConnContext: withConn,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: g.times.header, ReadTimeout: g.times.body, IdleTimeout: g.times.idle,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       newErrorLog(g.log),
		// OPTIONS * is checked like others.
		DisableGeneralOptionsHandler: true,
	}
}

// Addresses returns the addresses that the gateway listens on, those of HealthListen last.
func (g *Gateway) Addresses() (list []string) {
	for _, l := range append(g.listeners[:len(g.listeners):len(g.listeners)], g.health...) {
		list = append(list, addressOf(l))
	}
	return list
}
