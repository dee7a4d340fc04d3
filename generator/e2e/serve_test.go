//go:build linux

package e2e

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"reel.internal/reel/client"
)

// Greedy completions equal those of transformers, from tokens and from text, one after the other and all at once.
func TestGolden(t *testing.T) {
	t.Parallel()
	g := serve(t)
	c := g.client()
	list := goldens(t)
	list = list[:scaled(len(list), 4)]
	if len(list) < 4 {
		t.Fatalf("%d golden prompts", len(list))
	}
	alone := make([]result, len(list))
	for i, want := range list {
		alone[i] = ask(c, greedy(want.Tokens, len(want.Greedy)))
		if ids := alone[i].ids(); len(ids) != 64 || !slices.Equal(ids, want.Greedy) {
			t.Errorf("prompt %d: %d tokens %v (%s), want %v", i, len(ids), ids, alone[i].Err, want.Greedy)
		}
	}
	var group sync.WaitGroup
	for i, want := range list {
		group.Go(func() { wantSame(t, i, ask(c, greedy(want.Tokens, 64)), alone[i]) })
		if want.Text != "" {
			req := greedy(nil, 64)
			req.Prompt = want.Text
			group.Go(func() { wantSame(t, i, ask(c, req), alone[i]) })
		}
	}
	group.Wait()
}

// wantSame checks that a request's result is the same as alone.
func wantSame(t *testing.T, number int, got, want result) {
	if !reflect.DeepEqual(got, want) {
		t.Errorf("request %d among others differs from the same alone:\n%+v\n%+v", number, got, want)
	}
	for _, token := range got.Tokens {
		if !utf8.ValidString(token.Text) {
			t.Errorf("request %d: %q is not valid UTF-8", number, token.Text)
		}
	}
}

// mixed returns requests with many lengths, seeds, filters and ends.
func mixed(t *testing.T) []client.Request {
	list := goldens(t)
	var all []client.Request
	for i := range scaled(60, 13) {
		source := list[i%len(list)]
		cut := min(len(source.Tokens), 1+i*7%40)
		if i == 0 {
			source = list[len(list)-1] // the longest takes several chunks
			cut = len(source.Tokens)
		}
		req := client.Request{Tokens: source.Tokens[:cut], MaxTokens: new(1 + i*5%18), Seed: new(uint64(i)),
			Temperature: new(0.5 + float64(i%3))}
		switch i % 5 {
		case 1:
			req.Logprobs, req.TopK, req.PresencePenalty = new(i%21), new(40), new(0.5)
		case 2:
			req.Stop, req.TopP, req.FrequencyPenalty = []string{"e", "\n\n"}, new(0.9), new(-0.25)
		case 3:
			req.Echo, req.MinP, req.RepeatPenalty = true, new(0.02), new(1.3)
		case 4:
			req.Temperature, req.IgnoreEOS = new(0.0), true
			req.LogitBias = []client.Bias{{Token: source.Tokens[0], Bias: 2}, {Token: int32(i), Bias: -3}}
		}
		if i%4 == 0 && source.Text != "" {
			req.Tokens, req.Prompt = nil, fmt.Sprintf("%.*s", cut, source.Text)
		}
		all = append(all, req)
	}
	return all
}

// 64 clients send 1,000 requests. Each request gets the same result as alone.
func TestManyClients(t *testing.T) {
	t.Parallel()
	g := serve(t)
	requests := mixed(t)
	want := make([]result, len(requests))
	reasons := map[string]int{}
	first := g.client()
	for i, req := range requests {
		want[i] = ask(first, req)
		reasons[want[i].Reason]++
		if want[i].Err != "" {
			t.Fatalf("request %d alone: %s", i, want[i].Err)
		}
	}
	if reasons["length"] == 0 || reasons["stop"] == 0 {
		t.Fatalf("the requests are not mixed: they end by %v", reasons)
	}
	first.Close()
	clients, total := scaled(64, 6), scaled(1000, 24)
	var group sync.WaitGroup
	for k := range clients {
		c := g.client()
		for first := range 2 { // two at once on each connection
			group.Go(func() {
				for n := 2*k + first; n < total; n += 2 * clients {
					i := n * 7 % len(requests)
					wantSame(t, i, ask(c, requests[i]), want[i])
				}
			})
		}
	}
	group.Wait()
	s := g.status()
	r := s.Requests
	if int(r.Finished) != total+len(requests) || r.Failed+r.Refused+r.Cancelled > 0 {
		t.Errorf("of %d requests: %+v", total+len(requests), s.Requests)
	}
	// A sequence's pages are free once no step in flight uses them.
	g.eventually("no page is in use", func() bool { return g.status().KV.Used == 0 })
}

// Biases of ±100 decide alone, and a penalty on the token that one of them favours lets the other through.
func TestBiasesAndPenalties(t *testing.T) {
	t.Parallel()
	c := serve(t).client()
	golden := goldens(t)[0]
	first := golden.Greedy[0]
	req := greedy(golden.Tokens, 6)
	req.LogitBias = []client.Bias{{Token: first, Bias: -100}}
	if ids := ask(c, req).ids(); len(ids) != 6 || slices.Contains(ids, first) {
		t.Errorf("%v, of which %d has a bias of -100", ids, first)
	}
	req.LogitBias = []client.Bias{{Token: 7, Bias: 100}, {Token: 9, Bias: 100}}
	req.FrequencyPenalty, req.PresencePenalty, req.MaxTokens = new(2.0), new(2.0), new(40)
	ids := ask(c, req).ids()
	count := map[int32]int{}
	for _, id := range ids {
		count[id]++
	}
	if len(ids) != 40 || count[7]+count[9] != 40 || count[7] == 0 || count[9] == 0 {
		t.Errorf("%v, want both 7 and 9 and no other", ids)
	}
}

// works checks that a new client gets the right tokens.
func (g *generator) works() {
	g.t.Helper()
	c := g.client()
	defer c.Close()
	golden := goldens(g.t)[3]
	if r := ask(c, greedy(golden.Tokens, 8)); !slices.Equal(r.ids(), golden.Greedy[:8]) {
		g.t.Errorf("the next request: %+v, want %v", r, golden.Greedy[:8])
	}
}

// A token is sent as soon as it exists. Tries are repeated since the machine may stall; a generator that holds tokens
// back fails every try.
func TestFirstTokenComesEarly(t *testing.T) {
	c := serve(t).client()
	n := scaled(200, 40)
	var shares []float64
	for range 3 {
		var first time.Duration
		begun, count := time.Now(), 0
		for _, err := range c.Generate(t.Context(), greedy([]int32{0}, n)) {
			if err != nil {
				t.Fatal(err)
			}
			if count++; count == 1 {
				first = time.Since(begun)
			}
		}
		if count != n {
			t.Fatalf("%d tokens of %d", count, n)
		}
		share := float64(first) / float64(time.Since(begun))
		if shares = append(shares, share); share <= 0.2 {
			return
		}
	}
	t.Errorf("the first of %d tokens took these shares of the time: %.2f", n, shares)
}

// An idle generator uses no processor, even with connected clients.
func TestIdle(t *testing.T) {
	t.Parallel()
	g := serve(t)
	for range 4 {
		if r := ask(g.client(), greedy([]int32{0}, 4)); r.Err != "" {
			t.Fatal(r.Err)
		}
	}
	var shares []float64
	for range 3 {
		before, begun := g.cpu(), time.Now()
		time.Sleep(time.Duration(scaled(3000, 500)) * time.Millisecond)
		share := float64(g.cpu()-before) / float64(time.Since(begun))
		if shares = append(shares, share); share < 0.01 {
			return
		}
	}
	t.Errorf("the idle generator uses these shares of a processor: %.4f", shares)
}
