package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"reel.internal/reel/protocol"
)

// peer is a server with OpenAI's completions over HTTP, streamed as server-sent events:
// llama-server, vLLM, SGLang, ollama.
type peer struct {
	name, url, model string
	text             bool // send prompts as text: the server takes no token ids
	http             *http.Client
}

// ErrPeer means that a peer did not answer as the API requires.
var ErrPeer = errors.New("the peer failed")

// NewPeer returns a Target for "NAME=URL" or "NAME=URL#MODEL". Without MODEL it takes the
// first model that the server lists. With text, a prompt of n token ids is sent as a text
// of n words; the server decides how many tokens that makes. Errors are ErrOptions and
// ErrPeer.
func NewPeer(ctx context.Context, spec string, text bool) (Target, error) {
	name, url, ok := strings.Cut(spec, "=")
	if !ok || name == "" || name == "reel" || !strings.HasPrefix(url, "http") {
		return nil, fmt.Errorf("%w: %q does not describe a peer: write one such as llama=http://127.0.0.1:8080",
			ErrOptions, spec)
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1024}
	p := &peer{name: name, text: text, http: &http.Client{Transport: transport}}
	p.url, p.model, _ = strings.Cut(url, "#")
	p.url = strings.TrimSuffix(p.url, "/")
	if p.model != "" {
		return p, nil
	}
	return p, p.findModel(ctx)
}

// findModel sets the first model that the server lists.
func (p *peer) findModel(ctx context.Context) error {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	body, err := p.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&list); err != nil || len(list.Data) == 0 {
		return fmt.Errorf("%w: %s lists no models (%w): name one, as in %s=%s#MODEL",
			ErrPeer, p.name, errors.Join(err), p.name, p.url)
	}
	p.model = list.Data[0].ID
	return nil
}

// do sends a request and returns the body of a successful answer.
func (p *peer) do(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := p.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPeer, p.name, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 300)) // as much as can be read
	return nil, fmt.Errorf("%w: %s: %s: %s", ErrPeer, p.name, answer.Status, bytes.TrimSpace(said))
}

// Name returns the peer's name.
func (p *peer) Name() string { return p.name }

// completionRequest is a request for a completion. Two fields are not OpenAI's: ignore_eos,
// which all of the servers except ollama know, and cache_prompt, which llama-server knows.
type completionRequest struct {
	Model         string         `json:"model"`
	Prompt        any            `json:"prompt"` // a text, or token ids
	MaxTokens     int            `json:"max_tokens"`
	Temperature   float64        `json:"temperature"`
	Stream        bool           `json:"stream"`
	StreamOptions map[string]any `json:"stream_options"`
	IgnoreEOS     bool           `json:"ignore_eos"`
	CachePrompt   bool           `json:"cache_prompt"`
}

// event is one server-sent event.
type event struct {
	Choices []struct {
		Text   string  `json:"text"` // of a completion
		Reason *string `json:"finish_reason"`
		Delta  struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"delta"` // of an answer
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// Complete makes a completion on the peer.
func (p *peer) Complete(ctx context.Context, w Work, arrived func()) (Ended, error) {
	body, err := p.do(ctx, http.MethodPost, "/v1/completions", completionRequest{
		Model: p.model, Prompt: p.prompt(w), MaxTokens: w.MaxTokens, IgnoreEOS: true,
		CachePrompt: w.cache() != protocol.CacheOff,
		Stream:      true, StreamOptions: map[string]any{"include_usage": true},
	})
	if err != nil {
		return Ended{}, err
	}
	defer body.Close()
	ended, err := p.read(body, func(string) { arrived() })
	if err != nil {
		return ended, fmt.Errorf("%w: %s: %w", ErrPeer, p.name, err)
	}
	return ended, nil
}

// read reads a stream to its end, and calls each for every piece of text.
func (p *peer) read(body io.Reader, each func(piece string)) (ended Ended, err error) {
	pieces := 0
	err = events(body, func(e *event) {
		for _, c := range e.Choices {
			if text := c.Text + c.Delta.Content; text != "" || c.Reason == nil && c.Delta.Role == "" {
				each(text)
				pieces++
			}
			if c.Reason != nil {
				ended.Reason = *c.Reason
			}
		}
		if u := e.Usage; u != nil {
			ended.PromptTokens, ended.CachedTokens, ended.Tokens = u.Prompt, u.Details.Cached, u.Completion
		}
	})
	if ended.Tokens == 0 {
		ended.Tokens = pieces // the server does not count: assume a piece per token
	}
	return ended, err
}

// prompt returns the prompt of w in the form to send.
func (p *peer) prompt(w Work) any {
	switch {
	case w.Text != "":
		return w.Text
	case p.text:
		return strings.TrimSpace(strings.Repeat("hello ", len(w.Tokens)))
	}
	return w.Tokens
}

// longestEvent bounds a line of a stream, in bytes.
const longestEvent = 1 << 20

// events calls each for every event of a stream, until its regular end.
func events(r io.Reader, each func(*event)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // an empty line, a comment, or an event's name
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			return nil
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("can't decode an event: %w", err)
		}
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return fmt.Errorf("it said %s", e.Error)
		}
		each(&e)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}
