package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"reel.internal/reel/client"
)

// chatRequest is a request for an answer. ignore_eos is not OpenAI's.
type chatRequest struct {
	Model         string           `json:"model"`
	Messages      []client.Message `json:"messages"`
	MaxTokens     int              `json:"max_tokens"`
	Temperature   float64          `json:"temperature"`
	Stream        bool             `json:"stream"`
	StreamOptions map[string]any   `json:"stream_options"`
	IgnoreEOS     bool             `json:"ignore_eos"`
}

// Answer answers a conversation on the peer, with the peer's own use of a cache.
func (p *peer) Answer(ctx context.Context, messages []client.Message, maxTokens int, _ bool,
	arrived func()) (string, Ended, error) {
	body, err := p.do(ctx, http.MethodPost, "/v1/chat/completions", chatRequest{
		Model: p.model, Messages: messages, MaxTokens: maxTokens, IgnoreEOS: true,
		Stream: true, StreamOptions: map[string]any{"include_usage": true},
	})
	if err != nil {
		return "", Ended{}, err
	}
	defer body.Close()
	var text strings.Builder
	ended, err := p.read(body, func(piece string) {
		arrived()
		text.WriteString(piece)
	})
	if err != nil {
		return "", ended, fmt.Errorf("%w: %s: %w", ErrPeer, p.name, err)
	}
	return text.String(), ended, nil
}
