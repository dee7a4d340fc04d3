package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"reel.internal/reel/client"
)

// ollamaVersion is the version of Ollama whose API these endpoints follow. Clients compare it with the
// least version that they need.
const ollamaVersion = "0.33.0"

// routesOllama adds the endpoints of Ollama's API.
func (g *Gateway) routesOllama(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": ollamaVersion})
	})
	mux.HandleFunc("GET /api/tags", g.api(g.tagsOllama))
	mux.HandleFunc("GET /api/ps", g.api(g.runningOllama))
	mux.HandleFunc("POST /api/show", g.api(g.showOllama))
	mux.HandleFunc("POST /api/generate", g.api(g.answerOllama))
	mux.HandleFunc("POST /api/chat", g.api(g.answerOllama))
	mux.HandleFunc("POST /api/embed", g.api(g.embedOllama))
	mux.HandleFunc("POST /api/embeddings", g.api(g.embeddingsOllama))
	for _, path := range []string{"pull", "push", "create", "copy", "delete", "blobs/"} {
		mux.HandleFunc("POST /api/"+path, ollamaLacks)
		mux.HandleFunc("DELETE /api/"+path, ollamaLacks)
	}
}

// ollamaLacks answers the endpoints that would change models.
func ollamaLacks(w http.ResponseWriter, r *http.Request) {
	writeError(w, r, refuse(http.StatusNotImplemented, "not_implemented", r.URL.Path+
		" is not served: this gateway shows the models of running generators"+
		" (start another reel-generator for another model)"))
}

// ollamaModel is a model in the lists of /api/tags and /api/ps, and with a part of its fields in
// /api/show. Reel knows neither the file's format nor the number of parameters.
type ollamaModel struct {
	Name          string        `json:"name"`
	Model         string        `json:"model"`
	ModifiedAt    time.Time     `json:"modified_at"` // the generator's start
	Size          int64         `json:"size"`        // bytes of the weights
	Digest        string        `json:"digest"`
	Details       ollamaDetails `json:"details"`
	Capabilities  []string      `json:"capabilities"`
	ExpiresAt     *time.Time    `json:"expires_at,omitempty"` // from here on of /api/ps alone
	SizeVRAM      *int64        `json:"size_vram,omitempty"`
	ContextLength int           `json:"context_length,omitempty"`
}

// ollamaDetails are those of a model.
type ollamaDetails struct {
	ParentModel       string   `json:"parent_model"`
	Format            string   `json:"format"`
	Family            string   `json:"family"`
	Families          []string `json:"families"`
	ParameterSize     string   `json:"parameter_size"`
	QuantizationLevel string   `json:"quantization_level"`
}

// tagged returns a model's name as Ollama writes it, with a tag.
func tagged(name string) string {
	if strings.Contains(name[strings.LastIndex(name, "/")+1:], ":") {
		return name
	}
	return name + ":latest"
}

// describeModel returns what a generator says of its model. One that sleeps says nothing: then only
// the name is known.
func (g *Gateway) describeModel(r *http.Request, m model) (ollamaModel, *client.Status) {
	o := ollamaModel{Name: tagged(m.name), Model: tagged(m.name), ModifiedAt: time.Unix(started, 0).UTC(),
		Digest: ollamaDigest(m.name), Details: ollamaDetails{Family: "reel", Families: []string{"reel"}},
		Capabilities: []string{"completion"}}
	c, err := m.reach(r.Context())
	if err != nil {
		return o, nil
	}
	o.Digest = ollamaDigest(m.name + m.sharedIdentity())
	if c.Embeddings() != nil {
		o.Capabilities = []string{"embedding"}
	}
	for name, has := range map[string]bool{"chat": c.Chat(), "tools": c.Tools(), "thinking": c.Reasoning()} {
		if has { // Ollama knows all of these but chat, which the page reads
			o.Capabilities = append(o.Capabilities, name)
		}
	}
	slices.Sort(o.Capabilities)
	status, err := m.status(r.Context())
	if err != nil {
		return o, nil
	}
	o.Size = status.Shape.WeightBytes
	o.ModifiedAt = time.Now().Add(-time.Duration(status.UptimeS * float64(time.Second))).UTC().Round(time.Second)
	return o, status
}

// ollamaDigest stands for the hash of a model's files: it changes with what the generator computes.
func ollamaDigest(what string) string {
	sum := sha256.Sum256([]byte(what))
	return hex.EncodeToString(sum[:])
}

// tagsOllama lists the models.
func (g *Gateway) tagsOllama(w http.ResponseWriter, r *http.Request) error {
	list := []ollamaModel{}
	for _, m := range g.backends.models(r.Context()) {
		o, _ := g.describeModel(r, m)
		list = append(list, o)
	}
	writeJSON(w, http.StatusOK, map[string]any{"models": list})
	return nil
}

// runningOllama lists the models that are in memory. They stay there.
func (g *Gateway) runningOllama(w http.ResponseWriter, r *http.Request) error {
	list := []ollamaModel{}
	for _, m := range g.backends.models(r.Context()) {
		o, status := g.describeModel(r, m)
		if status == nil {
			continue
		}
		never := time.Now().AddDate(100, 0, 0).UTC()
		o.ExpiresAt, o.ContextLength, o.SizeVRAM = &never, status.Limits.Context, new(deviceBytes(status))
		list = append(list, o)
	}
	writeJSON(w, http.StatusOK, map[string]any{"models": list})
	return nil
}

// deviceBytes returns the bytes that a generator uses on a GPU.
func deviceBytes(s *client.Status) (bytes int64) {
	if s.Device == "host" {
		return 0
	}
	for _, m := range s.Memory {
		bytes += m.Used
	}
	return bytes
}

// showOllama describes one model.
func (g *Gateway) showOllama(w http.ResponseWriter, r *http.Request) error {
	var q struct{ Model, Name string } // Name is the older one
	release, err := g.readJSON(w, r, &q)
	defer release()
	if err != nil {
		return err
	}
	if q.Model == "" {
		q.Model = q.Name
	}
	m, err := g.backends.look(r.Context(), q.Model)
	if err != nil {
		return err
	}
	o, status := g.describeModel(r, m)
	writeJSON(w, http.StatusOK, map[string]any{
		"details": o.Details, "capabilities": o.Capabilities, "modified_at": o.ModifiedAt, "template": "",
		"modelfile": "# served by Reel, which has no modelfiles\n", "parameters": ollamaParameters(status),
		"model_info": ollamaInfo(status),
	})
	return nil
}

// ollamaParameters lists the model's own defaults of sampling.
func ollamaParameters(s *client.Status) string {
	if s == nil || s.ChatDefaults == nil {
		return ""
	}
	d := s.ChatDefaults
	return fmt.Sprintf("temperature %g\ntop_k %d\ntop_p %g\nmin_p %g\nrepeat_penalty %g",
		d.Temperature, d.TopK, d.TopP, d.MinP, d.RepeatPenalty)
}

// ollamaInfo has the model's shape under names as in a GGUF file. Clients look for the context's length
// below the architecture's name.
func ollamaInfo(s *client.Status) map[string]any {
	info := map[string]any{"general.architecture": "reel"}
	if s == nil {
		return info
	}
	for name, value := range map[string]int{
		"context_length": s.Limits.Context, "vocab_size": s.Limits.Vocab, "block_count": s.Shape.Layers,
		"embedding_length": s.Shape.Hidden, "feed_forward_length": s.Shape.Inner,
		"attention.head_count": s.Shape.Heads, "attention.head_count_kv": s.Shape.KVHeads,
	} {
		info["reel."+name] = value
	}
	return info
}

// answerOllama answers /api/generate and /api/chat.
func (g *Gateway) answerOllama(w http.ResponseWriter, r *http.Request) error {
	var q ollamaRequest
	release, err := g.readJSON(w, r, &q)
	defer release()
	if err != nil {
		return err
	}
	m, err := g.backends.find(r.Context(), q.Model)
	if err != nil {
		return err
	}
	c, err := m.describe(r.Context())
	if err != nil {
		return ended(r.Context(), err)
	}
	a := ollamaAnswer{model: q.Model, chat: r.URL.Path == "/api/chat"}
	if a.chat && len(q.Messages) == 0 || !a.chat && q.Prompt == "" {
		writeJSON(w, http.StatusOK, a.loaded())
		return nil
	}
	request, err := q.request(a.chat, c)
	if err != nil {
		return err
	}
	requests := []client.Request{request}
	if q.Stream != nil && !*q.Stream {
		return g.whole(w, r, m, requests, &ollamaWhole{ollamaAnswer: a})
	}
	s := g.newStream(w, false)
	defer s.end()
	if err := g.run(r.Context(), callerOf(r), m, requests, &ollamaStream{a, s}); err != nil {
		g.failed(r, err)
		s.fail(r, err)
	}
	return nil
}

// request returns the generator's request.
func (q *ollamaRequest) request(chat bool, c *client.Client) (client.Request, error) {
	if chat {
		return q.conversation(c.Limits())
	}
	return q.completion(c.Limits(), c.Chat())
}
