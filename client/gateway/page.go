package gateway

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"
)

//go:embed page.html
var pageHTML []byte

// page serves the page for people, and tells programs what Ollama tells them.
type page struct {
	policy string // Content-Security-Policy
	tag    string // ETag
	// refusal returns the error of a request that may not ask, for want of a key.
	refusal func(*http.Request) error
}

// newPage computes the hashes of the page's script and style, the only ones that a browser may run.
func newPage(refusal func(*http.Request) error) page {
	sum := sha256.Sum256(pageHTML)
	policy := []string{
		"default-src 'none'",
		"script-src " + sourceHash("script"),
		"style-src " + sourceHash("style"),
		"img-src data:",
		"connect-src 'self'",
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		// A string can become HTML nowhere, so a reply stays text.
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}
	return page{policy: strings.Join(policy, "; "), tag: `"` + hex.EncodeToString(sum[:8]) + `"`, refusal: refusal}
}

// sourceHash returns the hash of the page's only element of that name, as a source of the policy.
func sourceHash(element string) string {
	_, rest, _ := bytes.Cut(pageHTML, []byte("<"+element+">"))
	text, _, found := bytes.Cut(rest, []byte("</"+element+">"))
	if !found {
		panic("page.html has no " + element)
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("'sha256-%s'", base64.StdEncoding.EncodeToString(sum[:]))
}

// ServeHTTP answers GET and HEAD of /: with the page where HTML is asked for by name, as browsers do, and
// otherwise with the words by which programs know Ollama. A browser has no key when it opens a page: it gets the
// page as the body of the refusal, and the page asks for the key.
func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Add("Vary", "Accept") // beside Origin
	header.Set("X-Content-Type-Options", "nosniff")
	err := p.refusal(r)
	if !acceptsHTML(r.Header) {
		if err != nil {
			writeError(w, r, err)
			return
		}
		header.Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprint(w, "Ollama is running")
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", p.policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	if err != nil {
		w.WriteHeader(asAPIError(err).status)
		_, _ = w.Write(pageHTML)
		return
	}
	header.Set("Cache-Control", "no-cache") // an upgraded gateway shows its own page
	header.Set("ETag", p.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(pageHTML))
}

// acceptsHTML reports whether a request names text/html among the types that it takes. */* alone does not.
func acceptsHTML(header http.Header) bool {
	for _, part := range strings.Split(strings.Join(header.Values("Accept"), ","), ",") {
		kind, parameters, err := mime.ParseMediaType(part)
		quality, weighed := parameters["q"]
		refused := weighed && strings.Trim(quality, "0.") == "" // q=0: not at all
		if err == nil && kind == "text/html" && !refused {
			return true
		}
	}
	return false
}
