package gateway

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

const (
	someResponse     = `{"input":"hi"}`
	streamedResponse = `{"stream":true,"input":"hi"}`
)

// drawn are the parts of an answer that differ from one to the next.
var drawn = regexp.MustCompile(`((resp|msg|rs|fc|req)_)[A-Z2-7]{26}|("(created|completed)_at":)[0-9]+`)

// undrawn returns an answer without them.
func undrawn(body string) string { return drawn.ReplaceAllString(body, "${1}${3}0") }

// echoed returns the object of a response without what its request gives.
func echoed(status, end, details, output, usage string) string {
	return `{"id":"resp_0","object":"response","created_at":0,"completed_at":` + end + `,"status":"` + status +
		`","error":null,"incomplete_details":` + details + `,"model":"fake","instructions":null,"output":[` + output +
		`],"usage":` + usage + `,"tools":[],"tool_choice":"auto","parallel_tool_calls":true,` +
		`"text":{"format":{"type":"text"}},"reasoning":null,"temperature":0.6,"top_p":0.95,"presence_penalty":0,` +
		`"frequency_penalty":0,"top_logprobs":0,"max_output_tokens":null,"max_tool_calls":null,"truncation":"disabled",` +
		`"previous_response_id":null,"store":false,"background":false,"service_tier":"default","metadata":{},` +
		`"user":null,"safety_identifier":null,"prompt_cache_key":null}`
}

// The items of the stand-in's answer, and its usage.
const (
	thoughtItem = `{"type":"reasoning","id":"rs_0","status":"completed",` +
		`"content":[{"type":"reasoning_text","text":"hm"}],"summary":[]}`
	spokenPart = `{"type":"output_text","text":"<b>é","annotations":[],"logprobs":[]}`
	spokenItem = `{"type":"message","id":"msg_0","status":"completed","role":"assistant","content":[` + spokenPart + `]}`
	firstCall  = `{"type":"function_call","id":"fc_0","status":"completed","call_id":"c0","name":"f",` +
		`"arguments":"{\"a\":1}"}`
	secondCall = `{"type":"function_call","id":"fc_0","status":"completed","call_id":"c1","name":"g","arguments":"{}"}`
	allItems   = thoughtItem + "," + spokenItem + "," + firstCall + "," + secondCall
	itemUsage  = `{"input_tokens":3,"input_tokens_details":{"cached_tokens":2},"output_tokens":5,` +
		`"output_tokens_details":{"reasoning_tokens":1},"total_tokens":8}`
)

// TestResponse: reasoning, text and calls of tools are items of an answer, which counts its tokens.
func TestResponse(t *testing.T) {
	status, body := serveFake(t, thinker).post("/v1/responses", someResponse)
	want := echoed("completed", "0", "null", allItems, itemUsage) + "\n"
	if got := undrawn(body); status != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", status, got, want)
	}
}

// sse returns events as a stream has them, each with its name and its number.
func sse(numbered bool, events ...string) string {
	var text strings.Builder
	number := 0
	for _, e := range events {
		name, rest, _ := strings.Cut(e, " ")
		text.WriteString("event: " + name + "\ndata: {\"type\":\"" + name + `"`)
		if numbered {
			text.WriteString(`,"sequence_number":` + strconv.Itoa(number))
			number++
		}
		if rest != "" {
			text.WriteString("," + rest)
		}
		text.WriteString("}\n\n")
	}
	return text.String()
}

// TestResponseStream: each item begins, grows and ends in numbered events, and the last one has the whole response.
func TestResponseStream(t *testing.T) {
	status, body := serveFake(t, thinker).post("/v1/responses", streamedResponse)
	begun := `"response":` + echoed("in_progress", "null", "null", "", "null")
	of := func(id, index string) string {
		return `"output_index":` + index + `,"item_id":"` + id + `","content_index":0,`
	}
	call := func(index string) string { return `"output_index":` + index + `,"item_id":"fc_0",` }
	want := sse(true,
		"response.created "+begun,
		"response.in_progress "+begun,
		`response.output_item.added "output_index":0,"item":{"type":"reasoning","id":"rs_0","status":"in_progress",`+
			`"content":[],"summary":[]}`,
		`response.content_part.added `+of("rs_0", "0")+`"part":{"type":"reasoning_text","text":""}`,
		`response.reasoning_text.delta `+of("rs_0", "0")+`"delta":"hm"`,
		`response.reasoning_text.done `+of("rs_0", "0")+`"text":"hm"`,
		`response.content_part.done `+of("rs_0", "0")+`"part":{"type":"reasoning_text","text":"hm"}`,
		`response.output_item.done "output_index":0,"item":`+thoughtItem,
		`response.output_item.added "output_index":1,"item":{"type":"message","id":"msg_0","status":"in_progress",`+
			`"role":"assistant","content":[]}`,
		`response.content_part.added `+of("msg_0", "1")+
			`"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`,
		`response.output_text.delta `+of("msg_0", "1")+`"delta":"<b>é","logprobs":[]`,
		`response.output_text.done `+of("msg_0", "1")+`"text":"<b>é","logprobs":[]`,
		`response.content_part.done `+of("msg_0", "1")+`"part":`+spokenPart,
		`response.output_item.done "output_index":1,"item":`+spokenItem,
		`response.output_item.added "output_index":2,"item":{"type":"function_call","id":"fc_0","status":"in_progress",`+
			`"call_id":"c0","name":"f","arguments":""}`,
		`response.function_call_arguments.delta `+call("2")+`"delta":"{\"a\":"`,
		`response.function_call_arguments.delta `+call("2")+`"delta":"1}"`,
		`response.function_call_arguments.done `+call("2")+`"name":"f","arguments":"{\"a\":1}"`,
		`response.output_item.done "output_index":2,"item":`+firstCall,
		`response.output_item.added "output_index":3,"item":{"type":"function_call","id":"fc_0","status":"in_progress",`+
			`"call_id":"c1","name":"g","arguments":""}`,
		`response.function_call_arguments.delta `+call("3")+`"delta":"{}"`,
		`response.function_call_arguments.done `+call("3")+`"name":"g","arguments":"{}"`,
		`response.output_item.done "output_index":3,"item":`+secondCall,
		`response.completed "response":`+echoed("completed", "0", "null", allItems, itemUsage),
	)
	if got := undrawn(body); status != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", status, got, want)
	}
}

// TestResponseRepeats: a response has what was asked, and the model's own sampling where nothing was.
func TestResponseRepeats(t *testing.T) {
	script := fakegen.Script{Chat: true, Pieces: []string{"a"}, Spoil: func(reply any) {
		if s, ok := reply.(*protocol.Status); ok {
			s.ChatDefaults = &protocol.Sampling{Temperature: 0.25, TopP: 0.75}
		}
	}}
	s := serveFake(t, script)
	_, body := s.post("/v1/responses", someResponse)
	if !strings.Contains(body, `"temperature":0.25,"top_p":0.75,`) {
		t.Errorf("%s", body)
	}
	_, body = s.post("/v1/responses", `{"input":"hi","instructions":"x","store":true,"temperature":0,"top_p":0.5,`+
		`"presence_penalty":1,"frequency_penalty":2,"max_output_tokens":9,"max_tool_calls":3,"metadata":{"a":"b"},`+
		`"user":"u","safety_identifier":"s","prompt_cache_key":"k","parallel_tool_calls":false,"reasoning":{"effort":"low"},`+
		`"tools":[{"type":"function","name":"f","parameters":{"z":1,"a":2}}],"tool_choice":{"type":"function","name":"f"},`+
		`"text":{"format":{"type":"json_schema","name":"n","schema":{"z":1,"a":2}}}}`)
	for _, want := range []string{
		`"instructions":"x"`, `"store":false`, `"temperature":0,"top_p":0.5,"presence_penalty":1,"frequency_penalty":2`,
		`"max_output_tokens":9,"max_tool_calls":3`, `"metadata":{"a":"b"}`, `"user":"u"`, `"safety_identifier":"s"`,
		`"prompt_cache_key":"k"`, `"parallel_tool_calls":false`, `"reasoning":{"effort":"low","summary":null}`,
		`"tools":[{"type":"function","name":"f","description":null,"parameters":{"z":1,"a":2},"strict":null}]`,
		`"tool_choice":{"name":"f","type":"function"}`,
		`"format":{"type":"json_schema","name":"n","description":null,"schema":{"z":1,"a":2},"strict":true}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s\nhas no %s", body, want)
		}
	}
}

// TestIncompleteResponse: a response that max_output_tokens ends says so, and so does its last item. A response
// without text has a message without text.
func TestIncompleteResponse(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"a", "b"}})
	_, whole := s.post("/v1/responses", `{"input":"hi","max_output_tokens":1}`)
	_, stream := s.post("/v1/responses", `{"input":"hi","max_output_tokens":1,"stream":true}`)
	const item = `{"type":"message","id":"msg_0","status":"incomplete","role":"assistant","content":[` +
		`{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}`
	for _, want := range []string{`"completed_at":null,"status":"incomplete","error":null,` +
		`"incomplete_details":{"reason":"max_output_tokens"}`, `"output":[` + item + `]`} {
		if !strings.Contains(undrawn(whole), want) || !strings.Contains(undrawn(stream), want) {
			t.Errorf("%s\n%s\nhas no %s", whole, stream, want)
		}
	}
	if !strings.Contains(undrawn(stream), `"output_index":0,"item":`+item) ||
		!strings.Contains(stream, "\nevent: response.incomplete\n") {
		t.Errorf("%s", stream)
	}
	s = serveFake(t, fakegen.Script{Chat: true, Pieces: []string{}})
	for _, body := range []string{someResponse, streamedResponse} {
		if _, answer := s.post("/v1/responses", body); !strings.Contains(answer, `"output":[{"type":"message"`) {
			t.Errorf("%s", answer)
		}
	}
}

// TestResponseLogprobs: each token of the text has its log-probability once, also one whose text comes later.
func TestResponseLogprobs(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"", "é", ""}})
	const one = `{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[{"token":"x","logprob":-0.5,"bytes":[120]}]}`
	const none = `{"token":"","logprob":-0.5,"bytes":[],"top_logprobs":[{"token":"x","logprob":-0.5,"bytes":[120]}]}`
	const ask = `{"input":"hi","top_logprobs":1,"include":["message.output_text.logprobs"]`
	_, whole := s.post("/v1/responses", ask+"}")
	_, stream := s.post("/v1/responses", ask+`,"stream":true}`)
	const all = `"text":"é","annotations":[],"logprobs":[` + none + "," + one + "," + none + "]"
	if !strings.Contains(whole, all) || strings.Count(stream, all) != 3 {
		t.Errorf("%s\n%s\nhave no %s", whole, stream, all)
	}
	for _, want := range []string{`"delta":"é","logprobs":[` + none + "," + one + "]", `"delta":"","logprobs":[` + none + "]"} {
		if !strings.Contains(stream, want) {
			t.Errorf("%s\nhas no %s", stream, want)
		}
	}
}

// TestResponseFails: an error in the middle ends a stream with a response that has failed, and with an error that
// clients raise. Before the first event it has its status.
func TestResponseFails(t *testing.T) {
	failing := fakegen.Script{Chat: true, Pieces: []string{"a"}, Ending: fakegen.Fail,
		Error: protocol.Errorf("device_failed", "wait", "the device failed")}
	_, body := serveFake(t, failing).post("/v1/responses", streamedResponse)
	for _, want := range []string{
		`event: response.failed` + "\n" + `data: {"type":"response.failed","sequence_number":5,"response":{"id":"resp_0"`,
		`"status":"failed","error":{"code":"device_failed","message":"the device failed (wait)"}`,
		`event: error` + "\n" + `data: {"type":"error","sequence_number":6,"code":"device_failed",` +
			`"message":"the device failed (wait)","param":null,"error":{"message":"the device failed (wait)",` +
			`"type":"server_error","param":null,"code":"device_failed"}}`,
	} {
		if !strings.Contains(undrawn(body), want) {
			t.Errorf("%s\nhas no %s", body, want)
		}
	}
	failing.Pieces = []string{}
	for _, ask := range []string{someResponse, streamedResponse} {
		if status, body := serveFake(t, failing).post("/v1/responses", ask); status != 503 ||
			!strings.HasPrefix(body, `{"error":{"message":`) {
			t.Errorf("%d %s", status, body)
		}
	}
}

// TestNothingIsStored: what asks for a response that was given before is told so.
func TestNothingIsStored(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true})
	for _, r := range []*http.Request{
		s.request("GET", "/v1/responses/resp_1", ""), s.request("DELETE", "/v1/responses/resp_1", ""),
		s.request("POST", "/v1/responses/resp_1/cancel", "{}"), s.request("GET", "/v1/responses/resp_1/input_items", ""),
	} {
		if status, body := s.do(r); status != 404 || !strings.Contains(body, "stores no responses") {
			t.Errorf("%s %s: %d %s", r.Method, r.URL, status, body)
		}
	}
}
