//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"os"

	"reel.internal/reel/client"
)

// result is a request's result without its id and times.
type result struct {
	Tokens []client.Token
	Reason string
	Prompt int // tokens
	Err    string
}

// ids returns the completion's tokens.
func (r result) ids() []int32 {
	var ids []int32
	for _, t := range r.Tokens {
		if t.Index >= 0 {
			ids = append(ids, t.Token)
		}
	}
	return ids
}

// ask runs one request to its end.
func ask(c *client.Client, req client.Request) result {
	var r result
	var done client.Done
	req.Done = &done
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for t, err := range c.Generate(ctx, req) {
		if err != nil {
			r.Err = err.Error()
			break
		}
		t.ID = 0
		r.Tokens = append(r.Tokens, t)
	}
	r.Reason, r.Prompt = done.FinishReason, done.Usage.PromptTokens
	return r
}

// greedy returns a request for exactly n tokens.
func greedy(prompt []int32, n int) client.Request {
	return client.Request{Tokens: prompt, MaxTokens: &n, Temperature: new(0.0), IgnoreEOS: true}
}

// golden is a prompt and the completion by transformers.
type golden struct {
	Text   string  `json:"text"`
	Tokens []int32 `json:"tokens"`
	Greedy []int32 `json:"greedy"` // the 64 tokens that follow
}

// goldens returns the completions recorded with the embedded model.
func goldens(t interface{ Fatal(...any) }) []golden {
	raw, err := os.ReadFile("../tiny/golden/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []golden
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	return list
}
