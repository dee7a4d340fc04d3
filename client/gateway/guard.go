package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
)

// callerKey is the key of the asking user's name in a request's context.
type callerKey struct{}

// callerOf returns the name under which a request's generate.user and shares are counted.
func callerOf(r *http.Request) string {
	name, _ := r.Context().Value(callerKey{}).(string)
	return name
}

// guard refuses requests without a key where one is set, and names the user of others.
func (g *Gateway) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions && r.Header.Get("Origin") != "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		caller, err := g.caller(r)
		if err != nil {
			g.note(r, err)
			writeError(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// checked refuses requests of foreign users, hosts and pages.
func (g *Gateway) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w, r)
		writeDeadline(http.NewResponseController(w), g.times.stall)
		if err := g.admit(w, r); err != nil {
			g.note(r, err)
			w.Header().Set("Connection", "close")
			writeError(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// note logs that a request was refused.
func (g *Gateway) note(r *http.Request, err error) {
	g.log.Debug().Stringer("peer", peerOfRequest(r)).Str("host", r.Host).Str("origin", r.Header.Get("Origin")).
		Str("path", r.URL.Path).Str("code", asAPIError(err).code).Msg("refused")
}

// headers sets what every answer has. Anthropic's clients report the id of a request.
func headers(w http.ResponseWriter, r *http.Request) {
	if isAnthropic(r) {
		w.Header().Set("Request-Id", "req_"+rand.Text())
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin") // does not bind pages that CORS allows
}

// admit refuses a request by who made the connection, and by its Host and Origin. For an origin that
// is allowed it says so to the browser.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request) error {
	p := peerOfRequest(r)
	if g.foreign(p) {
		return refuse(http.StatusForbidden, "foreign_user",
			"this gateway serves its own user and root (give it --api-key-file, or --open-loopback for all of this machine)")
	}
	if p.unix {
		return nil
	}
	if !g.hosts.allowsHost(r) {
		return refuse(http.StatusForbidden, "foreign_host",
			"the request's Host names another server (if it is a name of this one, give the gateway --allow-host)")
	}
	if !g.hosts.allowsOrigin(r) {
		return refuse(http.StatusForbidden, "foreign_origin",
			"pages of this origin may not ask (if they should, give the gateway --allow-origin)")
	}
	if origin := r.Header.Get("Origin"); g.hosts.allowedElsewhere(origin) {
		allowOrigin(w, r, origin)
	}
	return nil
}

// allowOrigin sets the headers with which a browser lets a page of another origin ask.
func allowOrigin(w http.ResponseWriter, r *http.Request, origin string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions {
		return
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
	h.Set("Access-Control-Max-Age", "600")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
}

// errKey refuses a request without a right key.
var errKey = refuse(http.StatusUnauthorized, "invalid_api_key",
	"the request has no key, or a wrong one (send Authorization: Bearer KEY, or x-api-key: KEY)")

// caller names the user of a request: by its key, or by its peer. Anthropic's clients send the key as x-api-key.
func (g *Gateway) caller(r *http.Request) (string, error) {
	if g.o.Keys == nil {
		return peerOfRequest(r).String(), nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		key = r.Header.Get("X-Api-Key")
	}
	if name, ok := g.o.Keys.user(strings.TrimSpace(key)); ok {
		return name, nil
	}
	return "", errKey
}

// errDraining refuses new requests at the end.
var errDraining = &apiError{status: http.StatusServiceUnavailable, code: "draining",
	message: "the gateway is stopping (ask again in a moment)", retry: 1}

// errShutdown ends the requests that drain did not wait for.
var errShutdown = errors.New("the gateway has stopped before the request ended")

// busy counts a request that a drain waits for.
func (g *Gateway) busy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.running.Add(1)
		defer g.running.Add(-1)
		if g.draining.Load() {
			w.Header().Set("Connection", "close")
			writeError(w, r, errDraining)
			return
		}
		next.ServeHTTP(w, r)
	})
}
