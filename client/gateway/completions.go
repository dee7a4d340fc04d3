package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// defaultTokens is the length of a completion without max_tokens, as in OpenAI's API.
const defaultTokens = 16

// textRequest is the body of /v1/completions.
type textRequest struct {
	fields
	Prompt   prompts `json:"prompt"`
	Echo     bool    `json:"echo"`
	Logprobs *int    `json:"logprobs"`
	BestOf   *int    `json:"best_of"` // completions of which the best n are the answer
}

// prompts are texts or lists of token ids.
type prompts struct {
	texts  []string
	tokens [][]int32
}

// UnmarshalJSON decodes a text, a list of texts, a list of tokens or a list of such lists.
func (p *prompts) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		p.texts = make([]string, 1)
		return json.Unmarshal(text, &p.texts[0])
	}
	first := bytes.TrimLeft(text[1:], " \t\r\n")
	switch {
	case text[0] != '[' || len(first) == 0:
	case first[0] == '"':
		return json.Unmarshal(text, &p.texts)
	case first[0] == '[':
		return json.Unmarshal(text, &p.tokens)
	case first[0] >= '0' && first[0] <= '9':
		p.tokens = make([][]int32, 1)
		return json.Unmarshal(text, &p.tokens[0])
	}
	return badField("prompt", "want a text, a list of texts, a list of token ids or a list of such lists")
}

// requests returns the protocol's requests for q: those of each prompt's choices, in order.
func (q *textRequest) requests(l client.Limits) (list []client.Request, err error) {
	n, err := q.choices()
	if err == nil {
		err = q.check(n)
	}
	if err != nil {
		return nil, err
	}
	req, err := q.request(defaultTokens, l)
	if err != nil {
		return nil, err
	}
	req.Echo, req.Logprobs = q.Echo, q.Logprobs
	for _, text := range q.Prompt.texts {
		req.Prompt = text
		list = append(list, q.repeated(req, n)...)
	}
	req.Prompt = ""
	for _, ids := range q.Prompt.tokens {
		req.Tokens = ids
		list = append(list, q.repeated(req, n)...)
	}
	return list, nil
}

// check refuses what a completion cannot follow. n is the number of choices of each prompt.
func (q *textRequest) check(n int) error {
	count := len(q.Prompt.texts) + len(q.Prompt.tokens)
	switch {
	case count == 0:
		return badField("prompt", "it is missing")
	case count*n > maxChoices:
		return badField("prompt", fmt.Sprintf("prompts times n are %d choices: want at most %d", count*n, maxChoices))
	case q.Logprobs != nil && (*q.Logprobs < 0 || *q.Logprobs > protocol.MaxLogprobs):
		return badField("logprobs", fmt.Sprintf("want 0 to %d", protocol.MaxLogprobs))
	case q.Logprobs != nil && q.Echo:
		return badField("echo", "log-probabilities of a prompt are not computed: leave echo or logprobs out")
	}
	if q.BestOf != nil && *q.BestOf > n {
		return unsupported("best_of")
	}
	for _, ids := range q.Prompt.tokens {
		if len(ids) == 0 {
			return badField("prompt", "a list of tokens is empty")
		}
	}
	return q.refused.check()
}

// complete answers POST /v1/completions.
func (g *Gateway) complete(w http.ResponseWriter, r *http.Request) error {
	var q textRequest
	m, requests, release, err := g.accept(w, r, &q)
	defer release()
	if err != nil {
		return err
	}
	n, _ := q.choices() // has been checked
	e := newEnvelope("cmpl-", "text_completion", m)
	if q.Stream {
		a := &textStream{events: newEvents(e, &q.fields), offsets: make([]int, len(requests))}
		return g.streamed(w, r, m, requests, a)
	}
	return g.whole(w, r, m, requests, &textAnswer{envelope: e, Choices: make([]textChoice, len(requests)), choices: n})
}
