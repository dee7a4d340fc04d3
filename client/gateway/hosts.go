package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// hosts decides which names a request may call the gateway by, and which pages may ask. A page of
// another site can make its name resolve to 127.0.0.1, but the browser then sends that name.
type hosts struct {
	names   []string // lower case, without a port
	origins []string // as browsers send them
}

// newHosts reads the settings. Errors: [ErrConfig].
func newHosts(o Options) (hosts, error) {
	h := hosts{names: []string{"localhost", "127.0.0.1", "::1"}}
	for _, name := range o.AllowHosts {
		if name == "" || strings.ContainsAny(name, "/@ ") {
			return h, fmt.Errorf("%w: --allow-host %q: want a name such as box.example", ErrConfig, name)
		}
		h.names = append(h.names, hostname(name))
	}
	for _, address := range append(o.Listen[:len(o.Listen):len(o.Listen)], o.HealthListen...) {
		host, _, err := net.SplitHostPort(address)
		if at, _ := netip.ParseAddr(host); err == nil && host != "" && !at.IsUnspecified() {
			h.names = append(h.names, lower(host))
		}
	}
	for _, origin := range o.AllowOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return h, fmt.Errorf("%w: --allow-origin %q: want an origin such as https://app.example", ErrConfig, origin)
		}
		h.origins = append(h.origins, lower(origin))
	}
	return h, nil
}

// hostname returns the name of a Host header in lower case, without port and brackets.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return lower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
}

// lower returns a name with small letters for A to Z. Unicode has others that it takes for the same as i, k or s, and with
// them a name is another one.
func lower(name string) string {
	text := []byte(name)
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			text[i] += 'a' - 'A'
		}
	}
	return string(text)
}

// allowsHost reports whether a request's Host names this gateway. The address to which the
// connection came is a name too, where the gateway listens on all addresses.
func (h hosts) allowsHost(r *http.Request) bool {
	name := hostname(r.Host)
	if slices.Contains(h.names, name) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().String() == name
}

// allowsOrigin reports whether the page that made a request may make it. Programs send no Origin, and
// browsers none for the addresses of images and links: then they tell whether another site's page has it.
func (h hosts) allowsOrigin(r *http.Request) bool {
	origin, sent := r.Header["Origin"]
	if !sent {
		site := r.Header.Get("Sec-Fetch-Site")
		return site == "" || site == "none" || site == "same-origin" || r.URL.Path == "/"
	}
	if len(origin) != 1 {
		return false
	}
	return h.allowedElsewhere(origin[0]) || own(r, origin[0])
}

// allowedElsewhere reports whether the settings allow an origin.
func (h hosts) allowedElsewhere(origin string) bool {
	return slices.Contains(h.origins, lower(origin))
}

// own reports whether an origin is the page at the address to which a request came. One at another name
// of the gateway is not, whatever its port: on [::1] another user may serve it.
func own(r *http.Request, origin string) bool {
	scheme, host, _ := strings.Cut(lower(origin), "://")
	return (scheme == "http" || scheme == "https") && host != "" && host == lower(r.Host)
}
