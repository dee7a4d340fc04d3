package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// remembering is a generator that remembers each prompt with its cache on: a first token takes 1 ms for each word
// of a prompt after the longest beginning that it remembers. An answer's words are a, b, c and so on.
type remembering struct {
	seen     [][]string
	requests []client.Request
	wrong    bool // the answer depends on the cache
	err      error
}

func (g *remembering) Generate(_ context.Context, r client.Request) iter.Seq2[client.Token, error] {
	g.requests = append(g.requests, r)
	prompt := r.Prompt
	for _, m := range r.Messages {
		prompt += m.Role + " " + m.Content + " "
	}
	return func(yield func(client.Token, error) bool) {
		if g.err != nil {
			yield(client.Token{}, g.err)
			return
		}
		all := strings.Fields(prompt)
		cached := 0
		if r.Cache == protocol.CacheOn {
			cached = g.remembered(all)
			g.seen = append(g.seen, all)
		}
		time.Sleep(time.Duration(len(all)-cached) * time.Millisecond) // by synctest's clock
		for i := range *r.MaxTokens {
			text := string(rune('a' + i))
			if g.wrong && cached > 0 {
				text = "wrong"
			}
			yield(client.Token{Index: i, Text: " " + text}, nil)
		}
		*r.Done = client.Done{FinishReason: protocol.FinishLength,
			Usage: protocol.Usage{PromptTokens: len(all), CachedTokens: cached}}
	}
}

// remembered returns the length of the longest beginning of a prompt that the generator has seen.
func (g *remembering) remembered(all []string) (longest int) {
	for _, seen := range g.seen {
		n := 0
		for n < len(all)-1 && n < len(seen) && all[n] == seen[n] {
			n++
		}
		longest = max(longest, n)
	}
	return longest
}

// chatWith measures conversations with g.
func chatWith(t *testing.T, g Generator, chat bool, o ChatOptions) (report *Chat, err error) {
	synctest.Test(t, func(t *testing.T) {
		report, err = MeasureChat(t.Context(), NewReelChat(g, chat), o)
	})
	return report, err
}

// A turn with the cache takes the time of its new words, and of the answer before it; without the cache that of the
// whole conversation.
func TestMeasureChat(t *testing.T) {
	g := &remembering{}
	steps := 0
	got, err := chatWith(t, g, true, ChatOptions{Conversations: 3, Turns: 4, Words: 5, MaxTokens: 2, System: 3,
		Pause: time.Second, Mark: "m", Progress: func(done, of int) {
			if steps++; done != steps || of != 4*2*4 {
				t.Errorf("progress %d of %d at step %d", done, of, steps)
			}
		}})
	if err != nil || len(got.Rows) != 8 || len(got.Warnings) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, r := range got.Rows {
		turn := i%4 + 1
		prompt := 5 + 7 + 9*(turn-1) // the system message; the first message with its mark; a turn has 3 + 6 words
		alone, fresh := 6.0, 9.0     // the role and the words; and the answer before with its role
		if turn == 1 {               // the first has a mark, and finds the system message and the role
			alone, fresh = 7, 6
		}
		name, ttft := "reel", fresh
		if i >= 4 {
			name, ttft = "reel, cache off", float64(prompt)
		}
		if r.Target != name || r.Turn != turn || r.PromptTokens != float64(prompt) ||
			r.CachedTokens != float64(prompt)-ttft || len(r.Runs) != 3 || r.TTFT.Samples != 3 {
			t.Errorf("row %d: %+v, want turn %d of %s with a prompt of %d", i, r, turn, name, prompt)
		}
		if near := func(a, b float64) bool { return a > b*0.99 && a < b*1.01 }; !near(r.TTFT.P50, ttft) ||
			!near(r.Alone.P50, alone) || !near(r.Ratio, ttft/alone) {
			t.Errorf("row %d: TTFT %v, alone %v, ratio %v; want %v and %v",
				i, r.TTFT.P50, r.Alone.P50, r.Ratio, ttft, alone)
		}
	}
	for _, r := range g.requests {
		if !r.IgnoreEOS || *r.Temperature != 0 || r.Cache == "" || len(r.Messages) == 1 && *r.MaxTokens != 1 {
			t.Errorf("asked %+v", r)
		}
	}
	tables := got.Tables()
	if len(tables) != 2 || len(tables[0].Rows) != 4 || !slices.Contains(tables[0].Columns, "P50 / alone") ||
		len(got.Metrics()) != 8 || len(got.Charts()[0].Series) != 2 || len(got.Charts()[0].Series[1].X) != 4 {
		t.Errorf("%+v, %+v, %+v", tables, got.Metrics(), got.Charts())
	}
}

// Below the tables stands for each target whether its turns are within 1.5 times their messages alone.
func TestChatSaysWhichTurnsAreOver(t *testing.T) {
	c := Chat{Turns: 3, Rows: []ChatRow{{Target: "a", Turn: 1, Ratio: 1.1}, {Target: "a", Turn: 2, Ratio: 1.5},
		{Target: "a", Turn: 3, Ratio: 1.2}, {Target: "b", Turn: 1, Ratio: 1.51}, {Target: "b", Turn: 2, Ratio: 1.4},
		{Target: "b", Turn: 3, Ratio: 2}}}
	notes := c.Tables()[1].Notes
	for _, want := range []string{"a: P50 / alone is at most 1.50, in turn 2: all within 1.5",
		"b: P50 / alone is at most 2.00, in turn 3: 2 of 3 turns over 1.5"} {
		if !slices.Contains(notes, want) {
			t.Errorf("%q lacks %q", notes, want)
		}
	}
}

// The message alone comes after the same pause as the turn.
func TestChatRestsBeforeEachMessage(t *testing.T) {
	const pause = time.Second
	g := &remembering{}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if _, err := MeasureChat(t.Context(), NewReelChat(g, true), ChatOptions{Conversations: 1, Turns: 2, Words: 1,
			MaxTokens: 1, Pause: pause}); err != nil {
			t.Fatal(err)
		}
		if rested := time.Since(begin).Truncate(pause); rested != 2*2*2*2*pause {
			t.Errorf("rested %v before %d messages", rested, len(g.requests))
		}
	})
}

// Other measurements use no cache unless they are told to; then warnings tell how much was cached.
func TestCacheOfMeasurements(t *testing.T) {
	for use, want := range map[string]string{"": protocol.CacheOff, protocol.CacheOn: protocol.CacheOn} {
		g := &remembering{}
		lines := []Line{{Prompt: "a b c d e", OutputTokens: 1}}
		var latency *Latency
		var load *Throughput
		var err, failed error
		synctest.Test(t, func(t *testing.T) {
			latency, err = MeasureLatency(t.Context(), []Target{NewReel(g)}, limits(512),
				LatencyOptions{Prompts: []int{5}, MaxTokens: 2, Runs: 2, Cache: use})
			load, failed = MeasureThroughput(t.Context(), []Target{NewReel(g)}, limits(512), LoadOptions{
				Concurrency: []int{1}, Duration: time.Second, Workload: Workload{Lines: lines, Cache: use}})
		})
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		for _, r := range g.requests {
			if r.Cache != want {
				t.Errorf("--cache %q asks with %q", use, r.Cache)
			}
		}
		if n := load.Rows[0].CachedTokens; (n > 0) != (use != "") || (n > 0) != (len(load.Warnings) > 0) {
			t.Errorf("--cache %q: %d cached tokens, %v", use, n, load.Warnings)
		}
		latency.Rows[0].CachedTokens, latency.Warnings = 7, nil
		if latency.warnOfCache(); !strings.Contains(strings.Join(latency.Warnings, ""), "7 of 10 prompt tokens") {
			t.Errorf("%v", latency.Warnings)
		}
	}
}

// A model without a chat template gets a conversation as one text.
func TestMeasureChatOfABaseModel(t *testing.T) {
	g := &remembering{}
	got, err := chatWith(t, g, false, ChatOptions{Conversations: 1, Turns: 2, Words: 1, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	if notes := got.Tables()[1].Notes; !slices.ContainsFunc(notes, func(n string) bool {
		return strings.Contains(n, "no chat template")
	}) {
		t.Errorf("%q", notes)
	}
	r := g.requests[2] // the second turn; between are messages alone
	if r.Messages != nil || !strings.HasPrefix(r.Prompt, "0-a ") || !strings.Contains(r.Prompt, "\n\n a b\n\n") {
		t.Errorf("asked %+v", r)
	}
}

// Answers that depend on the cache are reported.
func TestMeasureChatComparesAnswers(t *testing.T) {
	got, err := chatWith(t, &remembering{wrong: true}, true,
		ChatOptions{Conversations: 1, Turns: 3, Words: 2, MaxTokens: 2})
	if err != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "5 answers differ") {
		t.Errorf("%v, %v", got.Warnings, err)
	}
}

func TestMeasureChatRefuses(t *testing.T) {
	for _, o := range []ChatOptions{{Turns: 1, Words: 1, MaxTokens: 1}, {Conversations: 1, Words: 1, MaxTokens: 1},
		{Conversations: 1, Turns: 1, MaxTokens: 1}, {Conversations: 1, Turns: 1, Words: 1},
		{Conversations: 1, Turns: 1, Words: 1, MaxTokens: 1, Pause: -1}} {
		if _, err := chatWith(t, &remembering{}, true, o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	long := &remembering{err: protocol.Errorf(protocol.CodePromptTooLong, "", "too long")}
	_, err := chatWith(t, long, true, ChatOptions{Conversations: 1, Turns: 1, Words: 1, MaxTokens: 1})
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "lower --turns") {
		t.Error(err)
	}
}

// A peer is asked for OpenAI's chat completions. A piece with the role alone is no token.
func TestPeerInAChat(t *testing.T) {
	var asked []chatRequest
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q chatRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v1/chat/completions" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		asked = append(asked, q)
		fmt.Fprint(w, `data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, "\n\n")
		for range q.MaxTokens {
			fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\" x\"},\"finish_reason\":null}]}\n\n")
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n")
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":%d,"+
			"\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n", q.MaxTokens)
	}))
	t.Cleanup(h.Close)
	p, err := NewPeer(t.Context(), "it="+h.URL+"#m", false)
	if err != nil {
		t.Fatal(err)
	}
	targets := append(NewReelChat(&remembering{}, true), p.(ChatTarget))
	got, err := MeasureChat(t.Context(), targets, ChatOptions{Conversations: 1, Turns: 2, Words: 1, MaxTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	row := got.Rows[5]
	if row.Target != "it" || row.PromptTokens != 9 || row.CachedTokens != 8 || got.Peers["it"] == "" {
		t.Errorf("%+v, %v", row, got.Peers)
	}
	q := asked[2] // the second turn of the warm-up
	if q.Model != "m" || len(q.Messages) != 3 || q.Messages[1].Content != " x x x" || q.MaxTokens != 3 || !q.Stream ||
		!q.IgnoreEOS || q.Temperature != 0 || q.StreamOptions["include_usage"] != true {
		t.Errorf("asked %+v", q)
	}
}
