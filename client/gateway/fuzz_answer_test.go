package gateway

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// drawnTokens returns tokens as a generator may send them, some against the protocol: a byte each.
func drawnTokens(plan []byte) (list []client.Token) {
	calls := 0
	for i, b := range plan {
		text := fmt.Sprintf("%d<é>", i)
		t := client.Token{Index: i}
		switch b % 8 {
		case 0:
			t.Reasoning = text
		case 1:
			t.Text = text
		case 2:
			t.Calls = []client.CallPiece{{Index: calls, ID: text, Name: "f"}}
			calls++
		case 3:
			t.Calls = []client.CallPiece{{Index: calls - 1, Arguments: "1"}}
		case 4:
			t.Calls = []client.CallPiece{{Index: int(b >> 3), Arguments: "2"}}
		case 5:
			t.Reasoning, t.Text = text, text
		case 6:
			t.Logprob = new(-1.0)
		case 7:
			t.Text, t.Calls = text, []client.CallPiece{{Index: calls, ID: text, Name: "g", Arguments: "{}"}}
			t.Logprob = new(-2.0)
			calls++
		}
		list = append(list, t)
	}
	return list
}

// say has tokens written, and the end of an answer. It returns the error that ended it.
func say(tokens []client.Token, finish string, to answer) error {
	for _, t := range tokens {
		if err := to.token(0, &t); err != nil {
			return err
		}
	}
	return to.done(0, &client.Done{FinishReason: finish, Usage: protocol.Usage{CompletionTokens: len(tokens)}})
}

// streamOf returns the events that an answer sends, as objects.
func streamOf(t *testing.T, a streamedAnswer, run func() error) (events []map[string]any, err error) {
	g := &Gateway{o: Options{Ping: time.Hour}, times: usualTimes}
	w := httptest.NewRecorder()
	s := g.newStream(w, true)
	defer s.end()
	a.open(s)
	err = run()
	for event := range strings.SplitSeq(w.Body.String(), "\n\n") {
		name, data, found := strings.Cut(event, "\ndata: ")
		if !found {
			continue
		}
		value := parsed(t, data)
		if name != "event: "+value["type"].(string) {
			t.Fatalf("%q is named %q", data, name)
		}
		events = append(events, value)
	}
	return events, err
}

// same compares two objects by their JSON text without what is drawn.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if x, y := undrawn(string(a)), undrawn(string(b)); x != y {
		t.Fatalf("%s:\n got %s\nwant %s", what, x, y)
	}
}

// asMap returns a value as JSON has it.
func asMap(t *testing.T, value any) map[string]any {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(text))
}

// FuzzResponsesStream: whatever tokens come, the events of a response are numbered, its items begin and end in turn,
// and its pieces and its last event make the response that is not streamed.
func FuzzResponsesStream(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 3, 7, 3, 6}, true)
	f.Add([]byte{6, 1, 6, 5, 2, 1, 3}, false)
	f.Fuzz(func(t *testing.T, plan []byte, cut bool) {
		plan = plan[:min(len(plan), 64)]
		q, finish := responsesRequest{}, protocol.FinishStop
		if cut {
			finish = protocol.FinishLength
		}
		start := func() responsesAnswer {
			return responsesAnswer{response: q.response(model{name: "m"}, protocol.DefaultSampling()), parts: parts{keep: true}}
		}
		whole := start()
		wanted := say(drawnTokens(plan), finish, &whole)
		whole.finish()
		stream := newResponsesStream(start())
		events, err := streamOf(t, stream, func() error { return say(drawnTokens(plan), finish, stream) })
		if (err == nil) != (wanted == nil) {
			t.Fatalf("streamed: %v, whole: %v", err, wanted)
		}
		open, texts := -1, map[int]string{}
		for i, e := range events {
			if int(e["sequence_number"].(float64)) != i {
				t.Fatalf("event %d is %v", i, e)
			}
			index, _ := e["output_index"].(float64)
			switch delta, _ := e["delta"].(string); {
			case e["type"] == "response.output_item.added" && open == -1:
				open = int(index)
			case e["type"] == "response.output_item.done" && open == int(index):
				open = -1
			case strings.HasPrefix(e["type"].(string), "response.output_item."):
				t.Fatalf("item %d is open: %v", open, e)
			case delta != "":
				texts[int(index)] += delta
			}
		}
		if err != nil {
			return
		}
		last := events[len(events)-1]["response"].(map[string]any)
		same(t, "the response", last, asMap(t, whole.response))
		for i, p := range whole.list {
			same(t, "the text", texts[i], p.text.String())
		}
	})
}

// FuzzAnthropicStream: whatever tokens come, the blocks of a message begin and end in turn, and its events make the
// message that is not streamed.
func FuzzAnthropicStream(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 7, 6})
	f.Add([]byte{6, 1, 6, 5, 2, 1, 3})
	f.Fuzz(func(t *testing.T, plan []byte) {
		plan = plan[:min(len(plan), 64)]
		q := anthropicRequest{fields: fields{MaxTokens: new(100)}}
		whole := newAnthropicAnswer(&q, model{name: "m"})
		whole.keep = true
		wanted := say(drawnTokens(plan), protocol.FinishStop, &whole)
		stream := newAnthropicStream(newAnthropicAnswer(&q, model{name: "m"}))
		events, err := streamOf(t, stream, func() error { return say(drawnTokens(plan), protocol.FinishStop, stream) })
		if (err == nil) != (wanted == nil) {
			t.Fatalf("streamed: %v, whole: %v", err, wanted)
		}
		open, texts := -1, map[int]string{}
		for _, e := range events {
			index, _ := e["index"].(float64)
			delta, _ := e["delta"].(map[string]any)
			switch e["type"] {
			case "content_block_start":
				if open != -1 {
					t.Fatalf("block %d is open: %v", open, e)
				}
				open = int(index)
			case "content_block_delta":
				for _, field := range []string{"text", "thinking", "partial_json"} {
					text, _ := delta[field].(string)
					texts[int(index)] += text
				}
			case "content_block_stop":
				open = -1
			}
		}
		if err != nil {
			return
		}
		same(t, "the end", events[len(events)-2]["usage"], asMap(t, whole.Usage))
		for i, p := range whole.list {
			same(t, "the text", texts[i], p.text.String())
		}
	})
}
