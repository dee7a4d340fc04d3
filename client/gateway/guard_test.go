package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
)

const someChat = `{"messages":[{"role":"user","content":"hi"}]}`

// TestForeignHosts: a request has to call the gateway by one of its names, whoever makes it.
func TestForeignHosts(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Chat: true})
	s := serve(t, Options{
		Generators: []Generator{{Socket: socket}}, AllowHosts: []string{"box.example", "Other.Example:80"}})
	for host, want := range map[string]int{
		"localhost": 200, "localhost:1": 200, "LOCALHOST:8080": 200, "127.0.0.1": 200, "127.0.0.1:99": 200,
		"[::1]": 200, "[::1]:8080": 200, "box.example": 200, "BOX.example:443": 200, "other.example": 200, "localhost.": 200,
		"evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "127.0.0.1.nip.io": 403,
		"169.254.1.1": 403, "0.0.0.0:8080": 403, "127.0.0.2": 403, "box.example.evil": 403, "[::2]": 403,
		"@localhost": 403,
	} {
		for _, path := range []string{"/v1/models", "/health", "/ready"} {
			if status, body := s.get(path, "Host", host); status != want {
				t.Errorf("%s of %s: %d, want %d: %s", path, host, status, want, body)
			}
		}
	}
	if status, _ := s.post("/v1/chat/completions", someChat, "Host", "evil.example"); status != 403 {
		t.Errorf("a chat: %d", status)
	}
}

// TestForeignHostsOfOddRequests: a foreign host is refused whatever the request's target and method.
func TestForeignHostsOfOddRequests(t *testing.T) {
	s := serve(t, Options{HealthListen: []string{"127.0.0.1:0"}})
	for _, address := range s.Addresses() {
		for _, line := range []string{
			"OPTIONS * HTTP/1.1", "GET //v1//models HTTP/1.1", "GET /v1/../health HTTP/1.1", "CONNECT evil.example:80 HTTP/1.1",
			"GET http://evil.example/health HTTP/1.1", "TRACE / HTTP/1.1", "GET /api/blobs HTTP/1.0",
		} {
			answer := exchange(t, address, []byte(line+"\r\nHost: evil.example\r\nConnection: close\r\n\r\n"))
			if status, _, _ := strings.Cut(string(answer), "\r\n"); !strings.Contains(status, " 403 ") {
				t.Errorf("%s: %s", line, status)
			}
		}
		answer := exchange(t, address, []byte("GET /health HTTP/1.0\r\n\r\n"))
		if !strings.Contains(string(answer), " 403 ") {
			t.Errorf("without a host: %s", answer)
		}
	}
}

// TestHostOfAnyAddress: on all addresses, a connection's own address is a name, and others are not.
func TestHostOfAnyAddress(t *testing.T) {
	keys, err := parseKeys("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{Listen: []string{"0.0.0.0:0"}, Keys: keys})
	_, port, _ := net.SplitHostPort(s.Addresses()[0])
	for to, want := range map[string]int{"127.0.0.2": 200, "127.0.0.1": 200} {
		s.url = "http://" + to + ":" + port
		if status, body := s.get("/health"); status != want {
			t.Errorf("%s: %d %s", to, status, body)
		}
		if status, _ := s.get("/health", "Host", "127.0.0.9"); status != 403 {
			t.Errorf("%s under another address: %d", to, status)
		}
	}
}

// TestForeignOrigins: only pages of the gateway itself and of allowed origins may ask.
func TestForeignOrigins(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Chat: true})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, AllowOrigins: []string{"https://app.example"}})
	_, port, _ := net.SplitHostPort(s.Addresses()[0])
	for origin, want := range map[string]int{
		"http://127.0.0.1:" + port: 200, "http://localhost:" + port: 403, "https://app.example": 200,
		"http://[::1]:" + port: 403,
		"null":                 403, "": 403, "http://evil.example": 403, "http://localhost:1": 403, "http://127.0.0.1": 403,
		"https://app.example.evil": 403, "http://app.example": 403, "https://app.example:8443": 403,
		"http://evil@127.0.0.1:" + port: 403, "file://": 403, "http://evil.example:" + port: 403,
	} {
		if status, body := s.post("/v1/chat/completions", someChat, "Origin", origin); status != want {
			t.Errorf("%q: %d, want %d: %s", origin, status, want, body)
		}
	}
	for site, want := range map[string]int{"none": 200, "same-origin": 200, "same-site": 403, "cross-site": 403} {
		if status, _ := s.get("/v1/models", "Sec-Fetch-Site", site); status != want {
			t.Errorf("an image's address, %s: %d, want %d", site, status, want)
		}
		if status, _ := s.get("/", "Sec-Fetch-Site", site); status != 200 {
			t.Errorf("a link to the page, %s: %d", site, status)
		}
	}
	two := s.request("GET", "/v1/models", "", "Origin", "https://app.example")
	two.Header.Add("Origin", "http://evil.example")
	if status, _ := s.do(two); status != 403 {
		t.Errorf("two origins: %d", status)
	}
}

// TestNamesInOtherLetters: names and origins have the letters A to Z in either case, and no letter beside them counts
// as one.
func TestNamesInOtherLetters(t *testing.T) {
	h, err := newHosts(Options{AllowHosts: []string{"kiosk.example"}, AllowOrigins: []string{"https://Kiosk.example"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"kiosk.example": true, "KIOSK.Example": true, "k\u0130osk.example": false,
		"\u212aiosk.example": false, "kio\u017fk.example": false, "kiosk.example\xff": false} {
		r := &http.Request{Host: name, Header: http.Header{}}
		if got := h.allowsHost(r); got != want {
			t.Errorf("the host %q: %t", name, got)
		}
		r.Host = "kiosk.example:80"
		for origin, own := range map[string]bool{"https://" + name: false, "HTTP://" + name + ":80": true} {
			if r.Header["Origin"] = []string{origin}; h.allowsOrigin(r) != want {
				t.Errorf("the origin %q, the page's own %t: %t", origin, own, !want)
			}
		}
	}
}

// TestCORS: a browser learns which pages may read answers; a preflight needs no key.
func TestCORS(t *testing.T) {
	keys, _ := parseKeys("0123456789abcdef")
	s := serve(t, Options{AllowOrigins: []string{"https://app.example"}, Keys: keys})
	ask := func(origin string) *http.Response {
		r := s.request("OPTIONS", "/v1/chat/completions", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,x-stainless-os",
			"Access-Control-Request-Private-Network", "true")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer
	}
	allowed := ask("https://app.example")
	for header, want := range map[string]string{
		"Access-Control-Allow-Origin": "https://app.example", "Vary": "Origin",
		"Access-Control-Allow-Headers":         "authorization,x-stainless-os",
		"Access-Control-Allow-Methods":         "GET, POST, OPTIONS",
		"Access-Control-Allow-Private-Network": "true",
	} {
		if got := allowed.Header.Get(header); allowed.StatusCode != http.StatusNoContent || got != want {
			t.Errorf("%d %s: %q, want %q", allowed.StatusCode, header, got, want)
		}
	}
	if refused := ask("https://evil.example"); refused.StatusCode != http.StatusForbidden ||
		refused.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a foreign origin: %d %v", refused.StatusCode, refused.Header)
	}
	answer, err := http.DefaultClient.Do(s.request("GET", "/", "", "Origin", "https://app.example"))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := answer.Header.Values("Vary"); !slices.Contains(got, "Origin") || !slices.Contains(got, "Accept") {
		t.Errorf("the page varies by %q", got)
	}
}

// TestKeys: where keys are set, everything but /health wants one, over TCP and Unix sockets.
func TestKeys(t *testing.T) {
	keys, err := parseKeys("# two keys\nfirst-key-0123456789\n\nsecond-key-0123456789\n")
	if err != nil {
		t.Fatal(err)
	}
	_, socket := fake(t, fakegen.Script{Chat: true})
	path := filepath.Join(t.TempDir(), "h")
	s := serve(t, Options{
		Generators: []Generator{{Socket: socket}}, Keys: keys, Listen: []string{"127.0.0.1:0", "unix:" + path}})
	over := map[string]http.RoundTripper{"tcp": http.DefaultTransport, "unix": &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	for network, transport := range over {
		for _, c := range []struct {
			path, authorization string
			want                int
		}{
			{"/health", "", 200}, {"/", "", 401}, {"/v1/models", "", 401}, {"/ready", "", 401}, {"/nothing", "", 401},
			{"/v1/models", "Bearer first-key-0123456789", 200}, {"/ready", "bearer second-key-0123456789", 200},
			{"/v1/models", "Bearer first-key-012345678", 401}, {"/v1/models", "Bearer ", 401},
			{"/v1/models", "Basic first-key-0123456789", 401}, {"/v1/models", "first-key-0123456789", 401},
			{"/v1/models", "Bearer # two keys", 401},
		} {
			r := s.request("GET", c.path, "", "Authorization", c.authorization)
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != c.want {
				t.Errorf("%s: %s with %q: %d, want %d", network, c.path, c.authorization, answer.StatusCode, c.want)
			}
		}
	}
}

// TestUsers: each key is a user of its own for the generator, and its name does not tell the key.
func TestUsers(t *testing.T) {
	keys, _ := parseKeys("first-key-0123456789\nsecond-key-0123456789")
	one, _ := keys.user("first-key-0123456789")
	two, _ := keys.user("second-key-0123456789")
	if one == two || strings.Contains(one, "first") || len(one) > 64 || len(one) < 16 {
		t.Errorf("%q and %q", one, two)
	}
	g, socket := fake(t, fakegen.Script{Chat: true})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Keys: keys})
	s.post("/v1/chat/completions", someChat, "Authorization", "Bearer first-key-0123456789")
	if got := lastRequest(t, g); got.User == nil || *got.User != one {
		t.Errorf("the generator sees user %v, want %q", got.User, one)
	}
	open, socket := fake(t, fakegen.Script{Chat: true})
	s = serve(t, Options{Generators: []Generator{{Socket: socket}}})
	s.post("/v1/chat/completions", someChat)
	if got := lastRequest(t, open); got.User == nil || *got.User != (peer{uid: os.Geteuid()}).String() {
		t.Errorf("without keys the generator sees user %v", got.User)
	}
}

// TestKeyFiles: a file of keys that others may read, or without a good key, is refused.
func TestKeyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	for _, c := range []struct {
		text string
		mode os.FileMode
		ok   bool
	}{
		{"0123456789abcdef\n", 0o600, true}, {"0123456789abcdef\n", 0o640, true}, {"0123456789abcdef", 0o400, true},
		{"0123456789abcdef\n", 0o644, false}, {"0123456789abcdef\n", 0o660, false},
		{"0123456789abcdef\n", 0o604, false},
		{"short\n", 0o600, false}, {"# nothing\n\n", 0o600, false}, {"", 0o600, false},
		{strings.Repeat("0123456789abcdef\n", maxKeyFile/17+1), 0o600, false},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		keys, err := ReadKeys(path)
		if c.ok && err != nil || !c.ok && !errors.Is(err, ErrConfig) {
			t.Errorf("%q of mode %v: %v, %v", c.text, c.mode, keys, err)
		}
		_ = os.Remove(path)
	}
	if os.Geteuid() == 0 {
		_ = os.WriteFile(path, []byte("0123456789abcdef"), 0o600)
		if err := os.Chown(path, 4321, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKeys(path); !errors.Is(err, ErrConfig) {
			t.Errorf("another user's file: %v", err)
		}
	}
	if _, err := ReadKeys(t.TempDir()); !errors.Is(err, ErrConfig) {
		t.Errorf("a directory: %v", err)
	}
}

// TestAliases: an alias stands for a model, and not for another alias.
func TestAliases(t *testing.T) {
	for _, c := range []struct {
		aliases map[string]string
		ok      bool
	}{{map[string]string{"a": "m", "b": "m", "m:latest": "m"}, true}, {map[string]string{"a": "m", "b": "a"}, false},
		{map[string]string{"a": "b:latest", "b": "m"}, false}} {
		g, err := New(Options{Listen: []string{"127.0.0.1:0"}, Aliases: c.aliases})
		if c.ok && err != nil || !c.ok && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "--alias")) {
			t.Errorf("%v: %v", c.aliases, err)
		}
		if err == nil {
			g.closeListeners()
		}
	}
}

// TestAddressesThatWantAKey: without a key the gateway refuses addresses that other machines reach.
func TestAddressesThatWantAKey(t *testing.T) {
	for address, ok := range map[string]bool{
		"0.0.0.0:0": false, ":0": false, "[::]:0": false, "127.0.0.1:0": true, "localhost:0": true,
		"nonsense": false, "unix:relative": false, "127.0.0.1:99999": false, "127.0.0.1:nonsense": false,
	} {
		g, err := New(Options{Listen: []string{address}})
		if ok && err != nil || !ok && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", address, err)
		}
		if err == nil {
			g.closeListeners()
		}
	}
}

// TestUnixListener: a Unix socket has its mode, is exempt from checks of names, and replaces a stale
// one alone.
func TestUnixListener(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "http.sock")
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Listen: []string{"unix:" + path}}); err == nil {
		t.Error("a socket that is in use was taken")
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = old.Close()
	s := serve(t, Options{Listen: []string{"unix:" + path}})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	s.url = "http://any"
	answer, err := transport.RoundTrip(s.request("GET", "/health", "", "Host", "any.example", "Origin", "null"))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", answer, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Listen: []string{"unix:" + file}}); err == nil {
		t.Error("a file was replaced")
	}
}

// TestHealthListener: the address for monitors serves three paths to everybody, and nothing else.
func TestHealthListener(t *testing.T) {
	keys, _ := parseKeys("0123456789abcdef")
	_, socket := fake(t, fakegen.Script{})
	s := serve(t, Options{Keys: keys, Generators: []Generator{{Socket: socket}}, HealthListen: []string{"127.0.0.1:0"}})
	s.url = "http://" + s.Addresses()[1]
	for path, want := range map[string]int{"/health": 200, "/ready": 200, "/v1/models": 404, "/": 404} {
		if status, body := s.get(path); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _ := s.get("/health", "Host", "evil.example"); status != 403 {
		t.Errorf("a foreign host: %d", status)
	}
}

// TestTLS: with a certificate the gateway speaks HTTPS, and still knows whose a connection is.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	s := serve(t, Options{TLSCert: cert, TLSKey: key})
	s.url = "https" + strings.TrimPrefix(s.url, "http")
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	answer, err := transport.RoundTrip(s.request("GET", "/v1/models", ""))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%+v, %v", answer, err)
	}
	if _, err := New(Options{Listen: []string{"127.0.0.1:0"}, TLSCert: cert}); !errors.Is(err, ErrConfig) {
		t.Errorf("a certificate without a key: %v", err)
	}
	if _, err := New(Options{Listen: []string{"127.0.0.1:0"}, TLSKey: key}); !errors.Is(err, ErrConfig) ||
		!strings.Contains(err.Error(), "give both") {
		t.Errorf("a key without a certificate: %v", err)
	}
}

// certificate writes a certificate of its own and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
