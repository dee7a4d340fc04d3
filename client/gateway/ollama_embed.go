package gateway

import (
	"net/http"
	"time"

	"reel.internal/reel/client"
)

// ollamaEmbedRequest is the body of /api/embed, and with Prompt that of the older /api/embeddings. Other fields, such
// as keep_alive and options, change no vector.
type ollamaEmbedRequest struct {
	Model      string `json:"model"`
	Input      texts  `json:"input"`
	Truncate   *bool  `json:"truncate"` // nil: true
	Dimensions int    `json:"dimensions"`
	Prompt     string `json:"prompt"`
}

// request returns what the fields say of each text's request.
func (q *ollamaEmbedRequest) request() client.EmbedRequest {
	req := client.EmbedRequest{Normalize: new(true), Truncate: q.Truncate == nil || *q.Truncate}
	if q.Dimensions != 0 {
		req.Dimensions = &q.Dimensions
	}
	return req
}

// embedOllama answers POST /api/embed. A request without a text finds out whether the model is there.
func (g *Gateway) embedOllama(w http.ResponseWriter, r *http.Request) error {
	begin := time.Now()
	q, m, release, err := g.readOllamaEmbed(w, r)
	defer release()
	if err != nil {
		return err
	}
	var requests []client.EmbedRequest
	for _, text := range q.Input {
		req := q.request()
		req.Text = text
		requests = append(requests, req)
	}
	all, tokens, done, err := g.embeddings(r, m, requests)
	defer done()
	if err != nil {
		return err
	}
	vectors := make([]any, len(all))
	for i, v := range all {
		vectors[i] = v.Vector
	}
	writeJSON(w, http.StatusOK, map[string]any{"model": q.Model, "embeddings": vectors, "prompt_eval_count": tokens,
		"total_duration": time.Since(begin).Nanoseconds(), "load_duration": 0})
	return nil
}

// embeddingsOllama answers POST /api/embeddings, whose vectors have the length that the model computes.
func (g *Gateway) embeddingsOllama(w http.ResponseWriter, r *http.Request) error {
	q, m, release, err := g.readOllamaEmbed(w, r)
	defer release()
	if err != nil {
		return err
	}
	if q.Prompt == "" {
		writeJSON(w, http.StatusOK, map[string]any{"embedding": []float32{}})
		return nil
	}
	req := client.EmbedRequest{Text: q.Prompt, Normalize: new(false), Truncate: true}
	all, _, done, err := g.embeddings(r, m, []client.EmbedRequest{req})
	defer done()
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"embedding": all[0].Vector})
	return nil
}

// readOllamaEmbed reads a request's body and finds its model. release is as of readJSON.
func (g *Gateway) readOllamaEmbed(w http.ResponseWriter, r *http.Request) (q ollamaEmbedRequest, m model,
	release func(), err error) {
	if release, err = g.readJSON(w, r, &q); err == nil {
		m, err = g.backends.find(r.Context(), q.Model)
	}
	return q, m, release, err
}
