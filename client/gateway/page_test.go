package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// browsers send such Accept headers when they navigate; programs, those of the second list.
var (
	acceptOfBrowsers = []string{
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
		"text/html, application/xhtml+xml",
		"Text/HTML;q=0.1",
	}
	acceptOfPrograms = []string{"", "*/*", "application/json", "text/*", "text/plain", "text/html;q=0.0", "text/htmlx"}
)

// everybodysPage is the page where no key is set.
var everybodysPage = newPage(func(*http.Request) error { return nil })

func askPage(method, accept string) *httptest.ResponseRecorder {
	return askPageOf(everybodysPage, method, accept)
}

func askPageOf(p page, method, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// Only a client that names text/html gets the page; all others get the words that programs look for.
func TestPageByAccept(t *testing.T) {
	for _, accept := range acceptOfBrowsers {
		w := askPage("GET", accept)
		if !strings.HasPrefix(w.Body.String(), "<!DOCTYPE html>") || w.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept %q gets %.60q", accept, w.Body)
		}
	}
	for _, accept := range acceptOfPrograms {
		w := askPage("GET", accept)
		if w.Body.String() != "Ollama is running" || w.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept %q gets %.60q", accept, w.Body)
		}
	}
	w := askPage("HEAD", acceptOfBrowsers[0])
	if w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("HEAD: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
}

// Without a key browsers get the page as the body of a refusal, so that it can ask for the key; programs get no word.
func TestPageWithoutAKey(t *testing.T) {
	p := newPage(func(*http.Request) error { return errKey })
	w := askPageOf(p, "GET", acceptOfBrowsers[0])
	if w.Code != http.StatusUnauthorized || !strings.HasPrefix(w.Body.String(), "<!DOCTYPE html>") ||
		w.Header().Get("Content-Security-Policy") != p.policy || w.Header().Get("ETag") != "" {
		t.Errorf("a browser gets %d, %v, %.60q", w.Code, w.Header(), w.Body)
	}
	w = askPageOf(p, "GET", "*/*")
	if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), errKey.code) {
		t.Errorf("a program gets %d, %.60q", w.Code, w.Body)
	}
}

// The policy names the hash of every script and style of the page, and allows nothing else.
func TestPagePolicy(t *testing.T) {
	w := askPage("GET", "text/html")
	policy, html := w.Header().Get("Content-Security-Policy"), w.Body.String()
	for _, kind := range []string{"script", "style"} {
		elements := regexp.MustCompile(`(?s)<`+kind+`[^>]*>(.*?)</`+kind+`>`).FindAllStringSubmatch(html, -1)
		if len(elements) != 1 {
			t.Fatalf("the page has %d elements %s, want 1", len(elements), kind)
		}
		sum := sha256.Sum256([]byte(elements[0][1]))
		want := kind + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		if !strings.Contains(policy, want+";") {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// The page asks no other host for anything, and parses no text as HTML.
func TestPageStandsAlone(t *testing.T) {
	html := strings.ReplaceAll(string(pageHTML), "xmlns='http://www.w3.org/2000/svg'", "")
	forbidden := []string{"http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
		" style=", " onclick=", "localStorage", "document.cookie"}
	for _, word := range forbidden {
		if strings.Contains(html, word) {
			t.Errorf("page.html contains %s", word)
		}
	}
}

// A browser that has the page gets it again only after it has changed.
func TestPageIsCached(t *testing.T) {
	first := askPage("GET", "text/html")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "text/html")
	r.Header.Set("If-None-Match", first.Header().Get("ETag"))
	w := httptest.NewRecorder()
	everybodysPage.ServeHTTP(w, r)
	if w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("%d with %d bytes, want 304 without any", w.Code, w.Body.Len())
	}
}
