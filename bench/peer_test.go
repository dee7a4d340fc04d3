package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// openAI is a small server of streaming completions.
type openAI struct {
	each     time.Duration // before each token
	buffered bool          // sends nothing before the end
	bundle   int           // tokens per piece; 0: one
	noUsage  bool
	say      string // sent instead of tokens
	status   int
	got      []completionRequest
}

func (s *openAI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.status != 0 {
		http.Error(w, "no such thing", s.status)
		return
	}
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"data":[{"id":"first"},{"id":"second"}]}`)
		return
	}
	var q completionRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v1/completions" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	s.got = append(s.got, q)
	if s.say != "" {
		fmt.Fprint(w, s.say)
		return
	}
	s.stream(w, &q)
}

func (s *openAI) stream(w http.ResponseWriter, q *completionRequest) {
	bundle := max(1, s.bundle)
	for i := 0; i < q.MaxTokens; i += bundle {
		time.Sleep(s.each * time.Duration(bundle))
		fmt.Fprint(w, "event: x\ndata: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n")
		if !s.buffered {
			w.(http.Flusher).Flush()
		}
	}
	fmt.Fprint(w, ": a comment\ndata: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}],\"error\":null}\n\n")
	if !s.noUsage {
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d}}\n\n",
			q.MaxTokens)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// peerOf serves s and returns a target for it.
func peerOf(t *testing.T, s *openAI, text bool) Target {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	p, err := NewPeer(t.Context(), "it="+h.URL+"/", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPeer(t *testing.T) {
	for _, noUsage := range []bool{false, true} {
		s := &openAI{noUsage: noUsage}
		c := measure(t.Context(), peerOf(t, s, false), Work{Tokens: []int32{7, 8}, MaxTokens: 12}, time.Now())
		if c.Err != nil || c.Tokens != 12 || len(c.Arrivals) != 12 || c.Reason != "length" ||
			(c.PromptTokens == 5) == noUsage {
			t.Errorf("got %+v", c)
		}
		q := s.got[0]
		if q.Model != "first" || fmt.Sprint(q.Prompt) != "[7 8]" || q.MaxTokens != 12 || q.Temperature != 0 ||
			!q.Stream || !q.IgnoreEOS || q.CachePrompt || q.StreamOptions["include_usage"] != true {
			t.Errorf("asked %+v", q)
		}
	}
}

func TestPeersCache(t *testing.T) {
	s := &openAI{}
	p := peerOf(t, s, false)
	for _, use := range []string{"", "on", "read"} {
		if c := measure(t.Context(), p, Work{Tokens: []int32{1}, MaxTokens: 1, Cache: use}, time.Now()); c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	if s.got[0].CachePrompt || !s.got[1].CachePrompt || !s.got[2].CachePrompt {
		t.Errorf("asked %+v", s.got)
	}
}

func TestPeerThatTakesTexts(t *testing.T) {
	s := &openAI{}
	p := peerOf(t, s, true)
	for _, w := range []Work{{Tokens: []int32{7, 8}, MaxTokens: 1}, {Text: "Once", MaxTokens: 1}} {
		if c := measure(t.Context(), p, w, time.Now()); c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	if s.got[0].Prompt != "hello hello" || s.got[1].Prompt != "Once" {
		t.Errorf("asked %+v", s.got)
	}
}

func TestPeerAlternatesWithReel(t *testing.T) {
	p := peerOf(t, &openAI{each: time.Millisecond}, false)
	reel := &paced{name: "reel", times: every(12, time.Millisecond, time.Millisecond)}
	got, err := MeasureLatency(t.Context(), []Target{reel, p}, limits(512),
		LatencyOptions{Prompts: []int{10}, MaxTokens: 12, Runs: 2})
	if !strings.HasPrefix(got.Peers["it"], "first at http://") || len(got.Peers) != 1 {
		t.Errorf("peers %q", got.Peers)
	}
	if err != nil || len(got.Rows) != 2 || got.Rows[1].Target != "it" || got.Rows[1].ITL.Samples != 22 ||
		got.Rows[1].TTFT.Min < 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPeerThatBuffersIsReported: over real HTTP, a server that sends all tokens at its end,
// or several in one event, is reported.
func TestPeerThatBuffersIsReported(t *testing.T) {
	for name, s := range map[string]*openAI{
		"at the end":     {each: 2 * time.Millisecond, buffered: true},
		"in events of 4": {each: time.Millisecond, bundle: 4},
	} {
		o := LatencyOptions{Prompts: []int{10}, MaxTokens: 24, Runs: 2}
		got, err := MeasureLatency(t.Context(), []Target{peerOf(t, s, false)}, limits(512), o)
		if err != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "it buffers its tokens") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestPeerFails(t *testing.T) {
	for says, s := range map[string]*openAI{
		"can't decode an event":       {say: "data: {\n\n"},
		"it said {\"message\":\"full": {say: "data: {\"error\":{\"message\":\"full\"}}\n\n"},
		"unexpected EOF":              {say: "data: {\"choices\":[]}\n\n"},
		"too long":                    {say: "data: " + strings.Repeat("x", longestEvent+1)},
	} {
		c := measure(t.Context(), peerOf(t, s, false), Work{Tokens: []int32{1}, MaxTokens: 2}, time.Now())
		if !errors.Is(c.Err, ErrPeer) || !strings.Contains(c.Err.Error(), says) {
			t.Errorf("%s: %v", says, c.Err)
		}
	}
	h := httptest.NewServer(&openAI{status: http.StatusNotFound})
	defer h.Close()
	_, err := NewPeer(t.Context(), "x="+h.URL, false)
	if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "404") ||
		!strings.Contains(err.Error(), "no such thing") {
		t.Errorf("404: %v", err)
	}
	p, err := NewPeer(t.Context(), "x="+h.URL+"#m", false) // with a model's name there is no question
	if err != nil {
		t.Fatal(err)
	}
	if c := measure(t.Context(), p, Work{Text: "a", MaxTokens: 1}, time.Now()); !errors.Is(c.Err, ErrPeer) {
		t.Errorf("got %v", c.Err)
	}
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[]}`)
	}))
	defer empty.Close()
	_, err = NewPeer(t.Context(), "x="+empty.URL, false)
	if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "#MODEL") {
		t.Errorf("no models: %v", err)
	}
	for _, spec := range []string{"", "x", "=http://a", "reel=http://a", "x=ftp://a"} {
		if _, err := NewPeer(t.Context(), spec, false); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}
