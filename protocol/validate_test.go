package protocol

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var testLimits = Limits{Context: 512, MaxBatch: 8, Vocab: 4096, PromptBytes: 1000, Frame: MaxFrame,
	Requests: MaxRequests, Connections: MaxConnections, Queue: MaxQueue}

// change sets one field of an otherwise valid request.
type change struct {
	name string
	set  func(*Generate)
	code string // empty: the request stays valid
	want string // in the message
}

func maxTokens(n int) func(*Generate)       { return func(g *Generate) { g.MaxTokens = &n } }
func temperature(v float64) func(*Generate) { return func(g *Generate) { g.Temperature = &v } }
func topK(n int) func(*Generate)            { return func(g *Generate) { g.TopK = &n } }
func topP(v float64) func(*Generate)        { return func(g *Generate) { g.TopP = &v } }
func minP(v float64) func(*Generate)        { return func(g *Generate) { g.MinP = &v } }
func penalty(v float64) func(*Generate)     { return func(g *Generate) { g.RepeatPenalty = &v } }
func logprobs(n int) func(*Generate)        { return func(g *Generate) { g.Logprobs = &n } }
func prompt(n int) func(*Generate) {
	return func(g *Generate) { g.Prompt = ptr(strings.Repeat("a", n)) }
}

// stops returns n stop strings of size bytes.
func stops(n, size int) func(*Generate) {
	return func(g *Generate) {
		for range n {
			g.Stop = append(g.Stop, strings.Repeat("a", size))
		}
	}
}

func tokens(ids ...int32) func(*Generate) {
	return func(g *Generate) { g.Prompt, g.Tokens = nil, ids }
}

func messages(list ...Message) func(*Generate) {
	return func(g *Generate) { g.Prompt, g.Messages = nil, append([]Message{}, list...) }
}

func cache(use string) func(*Generate) { return func(g *Generate) { g.Cache = &use } }

func special(v bool) func(*Generate) { return func(g *Generate) { g.Special = &v } }

// template sets variables, and messages if there are any.
func template(v Variables, list ...Message) func(*Generate) {
	return func(g *Generate) {
		if g.Template = v; list != nil {
			messages(list...)(g)
		}
	}
}

// sized returns a message of n bytes.
func sized(role string, n int) Message { return Message{Role: role, Content: strings.Repeat("a", n)} }

var changes = []change{
	{"nothing", func(*Generate) {}, "", ""},
	{"max_tokens at its bounds", maxTokens(1), "", ""},
	{"max_tokens at its bounds", maxTokens(512), "", ""},
	{"max_tokens 0", maxTokens(0), CodeBadRequest, "max_tokens is 0: it must be 1 to 512"},
	{"max_tokens negative", maxTokens(-1), CodeBadRequest, "max_tokens is -1"},
	{"max_tokens above", maxTokens(513), CodeBadRequest, "max_tokens is 513"},
	{"temperature 0", temperature(0), "", ""},
	{"temperature 100", temperature(100), "", ""},
	{"temperature negative", temperature(-0.1), CodeBadRequest, "temperature is -0.1: it must be 0 to 100"},
	{"temperature above", temperature(100.5), CodeBadRequest, "temperature"},
	{"temperature NaN", temperature(math.NaN()), CodeBadRequest, "temperature is NaN"},
	{"temperature infinite", temperature(math.Inf(1)), CodeBadRequest, "temperature is +Inf"},
	{"top_k 0", topK(0), "", ""},
	{"top_k all", topK(4096), "", ""},
	{"top_k negative", topK(-1), CodeBadRequest, "top_k is -1: it must be 0 to 4096"},
	{"top_k above", topK(4097), CodeBadRequest, "top_k"},
	{"top_p small", topP(1e-9), "", ""},
	{"top_p 0", topP(0), CodeBadRequest, "top_p is 0: it must be more than 0 to 1"},
	{"top_p negative", topP(-1), CodeBadRequest, "top_p"},
	{"top_p above", topP(1.01), CodeBadRequest, "top_p"},
	{"top_p NaN", topP(math.NaN()), CodeBadRequest, "top_p"},
	{"min_p at its bounds", minP(0), "", ""},
	{"min_p at its bounds", minP(1), "", ""},
	{"min_p negative", minP(-0.5), CodeBadRequest, "min_p is -0.5"},
	{"min_p above", minP(2), CodeBadRequest, "min_p"},
	{"min_p NaN", minP(math.NaN()), CodeBadRequest, "min_p"},
	{"repeat_penalty 100", penalty(100), "", ""},
	{"repeat_penalty 0", penalty(0), CodeBadRequest, "repeat_penalty is 0: it must be more than 0 to 100"},
	{"repeat_penalty negative", penalty(-1), CodeBadRequest, "repeat_penalty"},
	{"repeat_penalty above", penalty(101), CodeBadRequest, "repeat_penalty"},
	{"repeat_penalty infinite", penalty(math.Inf(1)), CodeBadRequest, "repeat_penalty"},
	{"repeat_penalty NaN", penalty(math.NaN()), CodeBadRequest, "repeat_penalty"},
	{"logprobs at its bounds", logprobs(0), "", ""},
	{"logprobs at its bounds", logprobs(20), "", ""},
	{"logprobs negative", logprobs(-1), CodeBadRequest, "logprobs is -1"},
	{"logprobs above", logprobs(21), CodeBadRequest, "logprobs"},
	{"16 stops of 256 bytes", stops(16, 256), "", ""},
	{"17 stops", stops(17, 1), CodeBadRequest, "stop has 17 strings"},
	{"an empty stop", stops(1, 0), CodeBadRequest, "stop[0] has 0 bytes"},
	{"a long stop", stops(2, 257), CodeBadRequest, "stop[0] has 257 bytes"},
	{"a prompt at its bound", prompt(1000), "", ""},
	{"a prompt too long", prompt(1001), CodePromptTooLong, "prompt has 1001 bytes"},
	{"an empty prompt", prompt(0), CodeBadRequest, "prompt is empty"},
	{"tokens at their bounds", tokens(0, 4095), "", ""},
	{"511 tokens", tokens(make([]int32, 511)...), "", ""},
	{"512 tokens", tokens(make([]int32, 512)...), CodePromptTooLong, "512 tokens"},
	{"an empty list of tokens", tokens([]int32{}...), CodeBadRequest, "tokens is empty"},
	{"a negative token", tokens(1, -1), CodeBadRequest, "tokens[1] is -1: it must be 0 to 4095"},
	{"a token outside the vocabulary", tokens(4096), CodeBadRequest, "tokens[0] is 4096"},
	{"no prompt", func(g *Generate) { g.Prompt = nil }, CodeBadRequest, "none of prompt, tokens and messages"},
	{"prompt and tokens", func(g *Generate) { g.Tokens = []int32{1} }, CodeBadRequest, "more than one of prompt"},
	{"prompt and messages", func(g *Generate) { g.Messages = []Message{{Role: "user", Content: "a"}} },
		CodeBadRequest, "more than one of prompt"},
	{"a prompt as text", special(false), "", ""},
	{"a prompt with control tokens", special(true), "", ""},
	{"special tokens", func(g *Generate) { tokens(1)(g); special(false)(g) },
		CodeBadRequest, "special is given without prompt"},
	{"a special conversation", func(g *Generate) { messages(Message{Role: "u"})(g); special(true)(g) },
		CodeBadRequest, "special is given without prompt"},
	{"a special message", messages(Message{Role: "u", Special: true}), "", ""},
	{"a template for a prompt", template(Variables{"x": 1}), CodeBadRequest, "template is given without messages"},
	{"a template for tokens", func(g *Generate) { tokens(1)(g); g.Template = Variables{"x": 1} },
		CodeBadRequest, "template is given without messages"},
	{"an empty template", template(Variables{}), "", ""},
	{"a template for messages", template(Variables{"x": 1}, Message{Role: "u"}), "", ""},
	{"a variable without a name", template(Variables{"": 1}, Message{Role: "u"}),
		CodeBadRequest, `template has the name ""`},
	{"a conversation", messages(Message{Role: "user"}, Message{Role: "assistant", Content: "b"}), "", ""},
	{"no messages", messages([]Message{}...), CodeBadRequest, "the number of messages is 0: it must be 1 to 4096"},
	{"4096 messages", messages(slices.Repeat([]Message{{Role: "user"}}, 4096)...), "", ""},
	{"4097 messages", messages(slices.Repeat([]Message{{Role: "user"}}, 4097)...),
		CodeBadRequest, "the number of messages is 4097"},
	{"no role", messages(Message{Role: "user"}, Message{Content: "a"}),
		CodeBadRequest, "messages[1].role has 0 bytes: it must have 1 to 64"},
	{"a role at its bound", messages(Message{Role: strings.Repeat("r", 64)}), "", ""},
	{"a long role", messages(Message{Role: strings.Repeat("r", 65)}), CodeBadRequest, "messages[0].role has 65 bytes"},
	{"content at its bound",
		messages(sized("u", 400), sized("a", 600)), "", ""},
	{"cache on", cache("on"), "", ""},
	{"cache read", cache("read"), "", ""},
	{"cache off", cache("off"), "", ""},
	{"no such use of the cache", cache("On"), CodeBadRequest, `cache is "On": it must be on, read or off`},
	{"an empty use of the cache", cache(""), CodeBadRequest, `cache is ""`},
	{"content too long",
		messages(sized("u", 400), sized("a", 601)),
		CodePromptTooLong, "messages has 1001 bytes"},
}

func TestValidate(t *testing.T) { testChanges(t, changes) }

func testChanges(t *testing.T, changes []change) {
	t.Helper()
	for _, c := range changes {
		g := &Generate{ID: 7, Prompt: ptr("a prompt")}
		c.set(g)
		e := g.Validate(testLimits)
		switch {
		case e == nil && c.code == "":
		case e == nil || e.Code != c.code || !strings.Contains(e.Message, c.want):
			t.Errorf("%s: %+v, want %q with %q", c.name, e, c.code, c.want)
		case e.ID == nil || *e.ID != 7 || e.Hint == "":
			t.Errorf("%s: %+v, want the id and a hint", c.name, e)
		}
	}
}

// TestDefaultsFitAnyContext: a short context reduces the default of max_tokens.
func TestDefaultsFitAnyContext(t *testing.T) {
	limits := testLimits
	limits.Context = DefaultMaxTokens / 2
	if e := (&Generate{Prompt: ptr("a")}).Validate(limits); e != nil {
		t.Error(e)
	}
}

func TestValidateTokenize(t *testing.T) {
	if e := (&Tokenize{Text: strings.Repeat("a", 1000)}).Validate(testLimits); e != nil {
		t.Error(e)
	}
	e := (&Tokenize{Text: strings.Repeat("a", 1001)}).Validate(testLimits)
	if e == nil || e.Code != CodePromptTooLong || e.ID != nil {
		t.Errorf("%+v, want %s without an id", e, CodePromptTooLong)
	}
}

func TestParams(t *testing.T) {
	defaults := Params{MaxTokens: 256, Temperature: 0.8, TopP: 1, RepeatPenalty: 1, Cache: CacheOn,
		DraftTokens: MaxDrafts}
	if got := (&Generate{}).Params(); !reflect.DeepEqual(got, defaults) {
		t.Errorf("defaults: %+v, want %+v", got, defaults)
	}
	g := Generate{
		MaxTokens: ptr(1), Temperature: ptr(0.0), TopK: ptr(2), TopP: ptr(0.5), MinP: ptr(0.25),
		RepeatPenalty: ptr(1.5), Seed: ptr(uint64(0)), Stop: []string{"x"}, Logprobs: ptr(0), Echo: true, IgnoreEOS: true,
		Cache: ptr(CacheRead), PresencePenalty: ptr(0.5), FrequencyPenalty: ptr(-0.5), LogitBias: []Bias{{1, 2}},
		User: ptr("u"), Draft: &Draft{Tokens: 3},
	}
	want := Params{MaxTokens: 1, TopK: 2, TopP: 0.5, MinP: 0.25, RepeatPenalty: 1.5, HasSeed: true, Stop: []string{"x"},
		HasLogprobs: true, Echo: true, IgnoreEOS: true, Cache: CacheRead, PresencePenalty: 0.5, FrequencyPenalty: -0.5,
		LogitBias: []Bias{{1, 2}}, User: "u", DraftTokens: 3}
	if got := g.Params(); !reflect.DeepEqual(got, want) {
		t.Errorf("all given: %+v, want %+v", got, want)
	}
}
