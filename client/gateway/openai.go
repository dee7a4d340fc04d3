package gateway

import (
	"net/http"
	"time"
)

// routesOpenAI adds the endpoints of OpenAI's API.
func (g *Gateway) routesOpenAI(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/models", g.api(g.listModels))
	mux.HandleFunc("GET /v1/models/{name...}", g.api(g.oneModel))
	mux.HandleFunc("POST /v1/chat/completions", g.api(g.chat))
	mux.HandleFunc("POST /v1/completions", g.api(g.complete))
	mux.HandleFunc("POST /v1/embeddings", g.api(g.embed))
}

// started is the time that models have as that of their creation.
var started = time.Now().Unix()

// openAIModel is a model in OpenAI's form.
type openAIModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func asOpenAIModel(name string) openAIModel { return openAIModel{name, "model", started, "reel"} }

func (g *Gateway) listModels(w http.ResponseWriter, r *http.Request) error {
	list := []openAIModel{}
	for _, name := range g.backends.listed(r.Context()) {
		list = append(list, asOpenAIModel(name))
	}
	if isAnthropic(r) {
		writeJSON(w, http.StatusOK, asAnthropicList(list))
		return nil
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
	return nil
}

func (g *Gateway) oneModel(w http.ResponseWriter, r *http.Request) error {
	m, err := g.backends.look(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	name := m.name
	if asked := untagged(r.PathValue("name")); g.backends.aliases[asked] != "" { // as it is listed
		name = asked
	}
	if isAnthropic(r) {
		writeJSON(w, http.StatusOK, asAnthropicModel(name))
		return nil
	}
	writeJSON(w, http.StatusOK, asOpenAIModel(name))
	return nil
}
