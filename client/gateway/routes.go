package gateway

import (
	"context"
	"net/http"
	"time"
)

// routes returns all that the gateway answers on its main addresses.
func (g *Gateway) routes() http.Handler {
	mux := http.NewServeMux()
	g.routesOpenAI(mux)
	g.routesOllama(mux)
	g.routesReady(mux)
	g.routesMetrics(mux)
	mux.HandleFunc("/", notFound)
	open := http.NewServeMux()
	open.Handle("/", g.guard(g.busy(mux)))
	open.Handle("GET /{$}", newPage(func(r *http.Request) error {
		_, err := g.caller(r)
		return err
	}))
	open.HandleFunc("GET /health", health)
	return g.metrics.counted(g.checked(open), open, mux) // a mux itself answers odd paths with a redirect
}

// healthRoutes returns what the gateway answers on the addresses of HealthListen, without a key.
func (g *Gateway) healthRoutes() http.Handler {
	mux := http.NewServeMux()
	g.routesReady(mux)
	g.routesMetrics(mux)
	mux.HandleFunc("GET /health", health)
	mux.HandleFunc("/", notFound)
	return g.checked(mux)
}

// notFound answers a path that the gateway does not serve.
func notFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, r, refuse(http.StatusNotFound, "not_found", r.Method+" "+r.URL.Path+" is not served"))
}

// health answers while the gateway lives.
func health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyTime bounds the wait for generators that do not answer.
const readyTime = 2 * time.Second

// routesReady adds /ready: 503 while no model can serve.
func (g *Gateway) routesReady(mux *http.ServeMux) {
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithTimeout(r.Context(), readyTime)
		defer stop()
		if g.draining.Load() || !g.backends.ready(ctx) {
			writeError(w, r, &apiError{status: http.StatusServiceUnavailable, code: "not_ready",
				message: "no model can serve now", retry: 1})
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	})
}

// failed logs an error that is not the client's.
func (g *Gateway) failed(r *http.Request, err error) {
	if e := asAPIError(err); e.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		g.failures.Warn().Str("path", r.URL.Path).Str("code", e.code).Err(err).Msg("a request failed")
	}
}

// api returns a handler that answers h's error in the form of the API. h must not have written
// anything before it returns one.
func (g *Gateway) api(h func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			g.failed(r, err)
			writeError(w, r, err)
		}
	}
}
