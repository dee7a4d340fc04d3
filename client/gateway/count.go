package gateway

import (
	"context"
	"net/http"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// counts answers a request for the number of tokens that q has, without anything being computed.
func (g *Gateway) counts(w http.ResponseWriter, r *http.Request, q question) (tokens int, err error) {
	m, requests, release, err := g.accept(w, r, q)
	defer release()
	if err != nil {
		return 0, err
	}
	tokens, err = count(r.Context(), callerOf(r), m, requests[0])
	return tokens, ended(r.Context(), err)
}

// count returns the number of tokens of a request's prompt. A format and a required call change no token of it, and
// need not be prepared.
func count(ctx context.Context, user string, m model, req client.Request) (int, error) {
	var done client.Done
	req.Count, req.MaxTokens, req.Format, req.Done = true, new(1), nil, &done
	if req.ToolName = ""; req.ToolChoice == protocol.ToolRequired {
		req.ToolChoice = ""
	}
	for _, err := range m.generate(ctx, user, req) {
		if err != nil {
			return 0, err
		}
	}
	return done.Usage.PromptTokens, nil
}

// countResponse answers POST /v1/responses/input_tokens.
func (g *Gateway) countResponse(w http.ResponseWriter, r *http.Request) error {
	n, err := g.counts(w, r, new(responsesRequest))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "response.input_tokens", "input_tokens": n})
	return nil
}

// anthropicCount is the body of /v1/messages/count_tokens.
type anthropicCount struct{ anthropicRequest }

// requests returns the protocol's request for q, which has no max_tokens.
func (q *anthropicCount) requests(l client.Limits) ([]client.Request, error) {
	q.MaxTokens = new(1)
	return q.anthropicRequest.requests(l)
}

// countAnthropic answers POST /v1/messages/count_tokens.
func (g *Gateway) countAnthropic(w http.ResponseWriter, r *http.Request) error {
	if err := checkVersion(r); err != nil {
		return err
	}
	n, err := g.counts(w, r, new(anthropicCount))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": n})
	return nil
}
