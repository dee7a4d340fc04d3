package protocol

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

const goldenFile = "testdata/frames.txt"

const goldenHead = `# Frames of the Reel protocol, version 1, to check an implementation against.
#
# frame   its name
# from    who sends it: client or generator
# means   what it says
# json    the message as JSON, with keys in alphabetical order
# refused instead of json: the code of the error with which a reader refuses it
# hex     the whole frame, header and body; a writer may order the fields as it
#         likes and use other encodings of the same numbers
#
# Written by: go test ./protocol -run TestGoldenFrames -update
`

// golden is a frame whose bytes are recorded in goldenFile.
type golden struct {
	name, from, means string
	msg               any    // nil if the frame is refused
	leaves            string // fields of msg that the frame leaves out
	body              string // if there is no msg
	refused           string // the error's code
}

var goldens = []golden{
	{name: "hello", from: "client", means: "The first frame of every connection.",
		msg: &Hello{Type: TypeHello, Version: 1}},
	{name: "generate", from: "client", means: "The smallest request: an id and a prompt.",
		msg: &Generate{Type: TypeGenerate, ID: 1, Prompt: ptr("To be, ")}},
	{name: "generate-all", from: "client", means: "Every field but tokens, and the greatest id.",
		msg: &Generate{Type: TypeGenerate, ID: 1<<64 - 1, Prompt: ptr("naïve €"),
			MaxTokens: ptr(200), Temperature: ptr(0.7),
			TopK: ptr(40), TopP: ptr(0.95), MinP: ptr(0.05), RepeatPenalty: ptr(1.1), Seed: ptr(uint64(1 << 63)),
			Stop: []string{"\n\n", "END"}, Logprobs: ptr(2), Echo: true, IgnoreEOS: true}},
	{name: "generate-tokens", from: "client",
		means: "A prompt of token ids, in the shortest integers that hold them; greedy.",
		msg: &Generate{Type: TypeGenerate, ID: 300, Temperature: ptr(0.0),
			Tokens: []int32{1, 127, 128, 4095, 128000}}},
	{name: "generate-messages", from: "client", means: "A conversation to answer.",
		msg: &Generate{Type: TypeGenerate, ID: 7, MaxTokens: ptr(64), Messages: []Message{
			{Role: "system", Content: "Be terse."}, {Role: "user", Content: "naïve?"},
			{Role: "assistant"}, {Role: "user", Content: "\n"}}}},
	{name: "generate-special", from: "client", means: "A message whose control tokens count.",
		msg: &Generate{Type: TypeGenerate, ID: 8, Messages: []Message{
			{Role: "system", Content: "Be terse."}, {Role: "user", Content: "<|eot|>", Special: true}}}},
	{name: "generate-text", from: "client", means: "A prompt that is text throughout.",
		msg: &Generate{Type: TypeGenerate, ID: 9, Prompt: ptr("<|eot|>"), Special: ptr(false)}},
	{name: "generate-cache", from: "client", means: "A prompt that is computed as a whole and leaves nothing.",
		msg: &Generate{Type: TypeGenerate, ID: 11, Prompt: ptr("To be, "), Cache: ptr(CacheOff)}},
	{name: "generate-template", from: "client", means: "Variables for the chat template.",
		msg: &Generate{Type: TypeGenerate, ID: 10, Messages: []Message{{Role: "user", Content: "Hi"}},
			Template: Variables{"enable_thinking": false, "none": nil, "level": int64(-7), "budget": uint64(300),
				"share": 0.5, "tags": []any{"a", int64(2)}, "map": map[string]any{"b": true, "a b": map[string]any{}}}}},
	{name: "generate-penalties", from: "client", means: "Penalties and biases, for a user within the uid.",
		msg: &Generate{Type: TypeGenerate, ID: 12, Prompt: ptr("To be, "), PresencePenalty: ptr(0.5),
			FrequencyPenalty: ptr(-1.5), LogitBias: []Bias{{Token: 3, Bias: -100}, {Token: 4000, Bias: 0.25}},
			User: ptr("key-1")}},
	{name: "generate-format", from: "client", means: "A completion that a JSON Schema accepts.",
		msg: &Generate{Type: TypeGenerate, ID: 13, Prompt: ptr("To be, "),
			Format: &Format{JSONSchema: `{"type": "object"}`}}},
	{name: "generate-choice", from: "client", means: "A completion that is one of two texts.",
		msg: &Generate{Type: TypeGenerate, ID: 14, Prompt: ptr("To be, "), Format: &Format{Choice: []string{"yes", "no"}}}},
	{name: "generate-tools", from: "client", means: "A conversation in which a tool was called; it may be called once more.",
		msg: &Generate{Type: TypeGenerate, ID: 15, Messages: []Message{
			{Role: "user", Content: "The weather in Köln?", Name: "eva"},
			{Role: "assistant", Reasoning: "I look.", ToolCalls: []ToolCall{
				{ID: "call_0", Name: "weather", Arguments: `{"city": "Köln"}`}}},
			{Role: "tool", Content: "rain", Name: "weather", ToolCallID: "call_0"}},
			Tools:      ptr(`[{"type": "function", "function": {"name": "weather", "parameters": {}}}]`),
			ToolChoice: ptr(ToolAuto), ParallelToolCalls: ptr(false), Reasoning: ptr(ReasoningApart)}},
	{name: "generate-tool-name", from: "client", means: "A call of that tool is required.",
		msg: &Generate{Type: TypeGenerate, ID: 16, Messages: []Message{{Role: "user", Content: "Hi"}},
			Tools:    ptr(`[{"type": "function", "function": {"name": "weather"}}]`),
			ToolName: ptr("weather")}},
	{name: "generate-draft-off", from: "client", means: "Nothing is guessed.",
		msg: &Generate{Type: TypeGenerate, ID: 17, Prompt: ptr("To be, "), Draft: &Draft{Word: DraftOff}}},
	{name: "generate-draft", from: "client", means: "A step guesses three tokens at most.",
		msg: &Generate{Type: TypeGenerate, ID: 18, Prompt: ptr("To be, "), Draft: &Draft{Tokens: 3}}},
	{name: "generate-prediction", from: "client", means: "The guesses, for a measurement.",
		msg: &Generate{Type: TypeGenerate, ID: 19, Prompt: ptr("To be, "), Draft: &Draft{Word: DraftOn},
			Prediction: []int32{1, 128, 4095}}},
	{name: "embed", from: "client", means: "Asks for the embedding of a text.",
		msg: &Embed{Type: TypeEmbed, ID: 20, Prompt: ptr("To be")}},
	{name: "embed-all", from: "client", means: "Every field but tokens.",
		msg: &Embed{Type: TypeEmbed, ID: 21, Prompt: ptr("To be"), Special: ptr(false), PromptName: ptr("query"),
			Normalize: ptr(true), Dimensions: ptr(256), Truncate: true, Cache: ptr(CacheRead), User: ptr("key-1")}},
	{name: "embed-tokens", from: "client", means: "The same of token ids.",
		msg: &Embed{Type: TypeEmbed, ID: 22, Tokens: []int32{1, 4095}}},
	{name: "cancel", from: "client", means: "Ends request 300.",
		msg: &Cancel{Type: TypeCancel, ID: 300}},
	{name: "status-request", from: "client", means: "Asks for the generator's status.",
		msg: &StatusRequest{Type: TypeStatus}},
	{name: "tokenize", from: "client", means: "Asks for the tokens of a text.",
		msg: &Tokenize{Type: TypeTokenize, Text: "To be"}},
	{name: "tokenize-text", from: "client", means: "The same of a text that has no control tokens.",
		msg: &Tokenize{Type: TypeTokenize, Text: "<|eot|>", Special: ptr(false)}},

	{name: "cache", from: "client", means: "Asks for the cached pages that the user's prompts can find.",
		msg: &CacheRequest{Type: TypeCache}},
	{name: "cache-drop", from: "client", means: "Drops them.",
		msg: &CacheRequest{Type: TypeCache, Drop: true}},
	{name: "cache-drop-user", from: "client", means: "Drop those of the requests of one user within the uid.",
		msg: &CacheRequest{Type: TypeCache, Drop: true, User: "key-1"}},

	{name: "welcome", from: "generator", means: "Answers hello: generate is served, within these limits.",
		msg: &Welcome{Type: TypeWelcome, Version: 1, Model: "tiny", Limits: goldenLimits}},
	{name: "welcome-chat", from: "generator", means: "The same of a model that has a chat template.",
		msg: &Welcome{Type: TypeWelcome, Version: 1, Model: "tiny", Limits: goldenLimits, Chat: true}},
	{name: "welcome-identity", from: "generator", means: "The same with the identity of all that decides tokens.",
		msg: &Welcome{Type: TypeWelcome, Version: 1, Model: "tiny", Limits: goldenLimits, Identity: "3f5a0c"}},
	{name: "welcome-tools", from: "generator", means: "The same of a model that calls tools, and reasons before an answer.",
		msg: &Welcome{Type: TypeWelcome, Version: 1, Model: "tiny", Limits: goldenLimits, Chat: true, Tools: true, Reasoning: true}},
	{name: "welcome-drafter", from: "generator", means: "The same of a generator that guesses tokens.",
		msg: &Welcome{Type: TypeWelcome, Version: 1, Model: "tiny", Limits: goldenLimits, Drafter: DrafterLookup}},
	{name: "welcome-embeddings", from: "generator", means: "The same of a model for embeddings: embed is served.",
		msg: &Welcome{Type: TypeWelcome, Version: 1, Model: "tiny", Limits: goldenLimits, Embeddings: &Embeddings{
			Dimensions: 1024, Least: 32, Normalized: true, Prompts: []string{"document", "query"}}}},
	{name: "token-reasoning", from: "generator", means: "A token of the model's reasoning.",
		msg: &Token{Type: TypeToken, ID: 1, Index: 0, Token: 262, Text: "", Reasoning: "Well, "}},
	{name: "token-calls", from: "generator", means: "A token that ends one call and begins the next.",
		msg: &Token{Type: TypeToken, ID: 1, Index: 9, Token: 262, Text: "", Calls: []CallPiece{
			{Index: 0, Arguments: "}"}, {Index: 1, ID: "call_1", Name: "weather"}}}},
	{name: "token", from: "generator", means: "The first token of a completion.",
		msg: &Token{Type: TypeToken, ID: 1, Index: 0, Token: 262, Text: " or"}},
	{name: "token-empty", from: "generator", means: "A token that holds only the beginning of a character.",
		msg: &Token{Type: TypeToken, ID: 1, Index: 1, Token: 226, Text: ""}},
	{name: "token-echo", from: "generator", means: "The last but one token of an echoed prompt.",
		msg: &Token{Type: TypeToken, ID: 1, Index: -2, Token: 300, Text: "be"}},
	{name: "token-logprobs", from: "generator", means: "A token with its logprob and two alternatives.",
		msg: &Token{Type: TypeToken, ID: 1<<64 - 1, Index: 70000, Token: 3, Text: " not", Logprob: ptr(-0.25),
			Top: []TopToken{{Token: 3, Text: " not", Logprob: -0.25}, {Token: 226, Text: "\uFFFD", Logprob: -2.5}}}},
	{name: "done", from: "generator", means: "Request 1 ended at a stop string or the end of sequence.",
		msg: &Done{Type: TypeDone, ID: 1, FinishReason: FinishStop, Usage: Usage{PromptTokens: 4, CompletionTokens: 60},
			Timing: Timing{QueueMS: 0.125, PrefillMS: 12.5, TTFTMS: 12.75, TotalMS: 180.5},
			Graphs: Graphs{Precaptured: 58, Rolled: 1, Padded: 2, Eager: 0}}},
	{name: "done-cached", from: "generator", means: "Request 2 ended; 4,000 prompt tokens were cached.",
		msg: &Done{Type: TypeDone, ID: 2, FinishReason: FinishLength,
			Usage:  Usage{PromptTokens: 4016, CompletionTokens: 1, CachedTokens: 4000},
			Timing: Timing{QueueMS: 0.125, PrefillMS: 4.5, TTFTMS: 4.75, TotalMS: 4.75},
			Graphs: Graphs{Precaptured: 1}}},
	{name: "done-drafted", from: "generator", means: "Request 3 ended; of 40 tokens that were guessed, 22 were accepted.",
		msg: &Done{Type: TypeDone, ID: 3, FinishReason: FinishStop,
			Usage:  Usage{PromptTokens: 16, CompletionTokens: 30, DraftedTokens: 40, AcceptedTokens: 22},
			Timing: Timing{QueueMS: 0.125, PrefillMS: 4.5, TTFTMS: 4.75, TotalMS: 44.5},
			Graphs: Graphs{Precaptured: 9}}},
	{name: "error", from: "generator", means: "Request 1 was refused; the connection stays.",
		msg: &Error{Type: TypeError, ID: ptr(uint64(1)), Code: CodeBadRequest,
			Message: "top_p is 2: it must be more than 0 to 1", Hint: "correct the field or leave it out"}},
	{name: "error-loading", from: "generator", means: "Answers hello while the model is loaded; 40% are done.",
		msg: &Error{Type: TypeError, Code: CodeLoading, Message: "the model is being loaded",
			Hint: "say hello again", Progress: ptr(0.4)}},
	{name: "status", from: "generator", means: "Answers a status request.", msg: goldenStatus(goldenGraphs)},
	{name: "status-older", from: "generator",
		means: "The same from a generator of before the fields graphs, machine, shape, memory, reserve, cache and drafts; " +
			"a reader takes it.",
		msg: olderStatus(), leaves: "graphs machine shape memory reserve cache drafts"},
	{name: "tokens", from: "generator", means: "Answers tokenize.",
		msg: &Tokens{Type: TypeTokens, Tokens: []int32{1, 306, 4000}}},

	{name: "cached", from: "generator", means: "Answers cache.",
		msg: &Cached{Type: TypeCached, Scope: ScopeUser, PageTokens: 16, Dropped: 3,
			Tiers: []CacheTier{{Tier: TierDevice, Pages: 250, Tokens: 4000, Bytes: 1 << 31}}}},

	{name: "embedding", from: "generator", means: "Answers embed 20.",
		msg: &Embedding{Type: TypeEmbedding, ID: 20, Vector: Vector{1, -0.5, 0},
			Usage:  Usage{PromptTokens: 20, CachedTokens: 16},
			Timing: Timing{QueueMS: 0.125, PrefillMS: 4.5, TTFTMS: 4.75, TotalMS: 4.75}, Graphs: Graphs{Precaptured: 1}}},

	{name: "refused-list", from: "client", means: "A list that declares 4,294,967,295 elements and holds none.",
		body: "\xdd\xff\xff\xff\xff", refused: CodeBadFrame},
	{name: "refused-tokens", from: "client", means: "The same as the tokens of a generate.",
		body:    string(pairs("type", text("generate"), "id", "\x01", "tokens", "\xdd\xff\xff\xff\xff")),
		refused: CodeBadFrame},
	{name: "refused-depth", from: "client", means: "17 levels, in a field that would have been ignored.",
		body: string(pairs("type", text("status"), "x", nested(16))), refused: CodeBadFrame},
	{name: "refused-utf8", from: "client", means: "A text that ends inside a character.",
		body: string(pairs("type", text("tokenize"), "text", "\xa2\xe2\x82")), refused: CodeBadFrame},
	{name: "refused-trailing", from: "client", means: "A byte behind the map.",
		body: string(pairs("type", text("status"))) + "\xc0", refused: CodeBadFrame},
	{name: "refused-extension", from: "client", means: "An extension type.",
		body: string(pairs("type", text("status"), "x", "\xd4\x01\x00")), refused: CodeBadFrame},
	{name: "refused-id", from: "client", means: "A negative number where 0 and more is needed.",
		body: string(pairs("type", text("cancel"), "id", "\xff")), refused: CodeBadMessage},
	{name: "refused-float", from: "client", means: "A float where a whole number is needed.",
		body: string(pairs("type", text("generate"), "id", "\x01", "prompt", text("a"),
			"max_tokens", "\xca\x41\x20\x00\x00")), refused: CodeBadMessage},
	{name: "refused-twice", from: "client", means: "A field that comes twice.",
		body: string(pairs("type", text("cancel"), "id", "\x01", "id", "\x02")), refused: CodeBadMessage},
	{name: "refused-message", from: "client", means: "A message without its role.",
		body: string(pairs("type", text("generate"), "id", "\x01",
			"messages", "\x91"+string(pairs("content", text("a"))))), refused: CodeBadMessage},
	{name: "refused-template-twice", from: "client", means: "A variable that comes twice, in a map of another.",
		body: string(pairs("type", text("generate"), "id", "\x01", "messages", "\x90",
			"template", "\x81\xa1x\x82\xa1y\x01\xa1y\x02")), refused: CodeBadMessage},
	{name: "refused-template-binary", from: "client", means: "A variable that JSON does not have.",
		body: string(pairs("type", text("generate"), "id", "\x01", "messages", "\x90",
			"template", "\x81\xa1x\x91\xc4\x01a")), refused: CodeBadMessage},
	{name: "refused-draft", from: "client", means: "A float where a word or a whole number is needed.",
		body: string(pairs("type", text("generate"), "id", "\x01", "prompt", text("a"),
			"draft", "\xca\x40\x40\x00\x00")), refused: CodeBadMessage},
	{name: "refused-type", from: "client", means: "A type that version 1 does not know.",
		body: string(pairs("type", text("pause"), "id", "\x01")), refused: CodeUnknownType},
}

var goldenLimits = Limits{Context: 1024, MaxBatch: 16, Vocab: 4096, PromptBytes: 16384, Frame: MaxFrame,
	Requests: MaxRequests, Connections: MaxConnections, Queue: MaxQueue}

func goldenStatus(graphs GraphPool) *Status {
	return &Status{
		Type: TypeStatus, State: StateReady, Version: "0.1.0", Model: "tiny", Device: "host",
		PID: 4242, UptimeS: 3600.5, Progress: 1, Connections: 3,
		Requests: Requests{Running: 2, Waiting: 1, Finished: 900, Cancelled: 7, Failed: 0, Refused: 4},
		KV:       KV{PageTokens: 16, Pages: 256, Used: 12, Bytes: 1 << 33, Cached: 200, Evicted: 70000},
		Cache:    Cache{Scope: ScopeUser, Requests: 950, Hits: 800, PromptTokens: 1 << 20, CachedTokens: 900000},
		Disk: Disk{State: DiskUsed, Bytes: 3 << 30, MaxBytes: 16 << 30, Pages: 1500, Hits: 40, Read: 1200,
			Written: 1700, Errors: 1},
		Steps: Steps{Prefill: 950, Decode: 70000, Tokens: 1 << 33,
			Graphs: Graphs{Precaptured: 65000, Rolled: 4000, Padded: 1900, Eager: 50}},
		Graphs: graphs, Limits: goldenLimits,
		Machine: Machine{Name: "NVIDIA H200", Driver: "580.159.04", MemoryUsed: 15 << 30, MemoryTotal: 140 << 30},
		Shape: Shape{Layers: 32, Hidden: 4096, Inner: 11008, Heads: 32, KVHeads: 8, HeadDim: 128,
			WeightBytes: 13 << 30},
		Memory:  []MemoryUse{{MemoryWeights, 14 << 30, 13 << 30}, {MemoryOther, 640 << 20, 700 << 20}},
		Reserve: Reserve{Slots: 1, Pages: 64, Tokens: 1024},
		Formats: Formats{State: FormatsRunning, Open: 3, Restarts: 1},
		Drafts: Drafts{Drafter: DrafterLookup, Tokens: 7, Counts: []DraftCount{
			{Drafts: 2, Steps: 300, Drafted: 600, Accepted: 150},
			{Drafts: 7, Steps: 70000, Drafted: 490000, Accepted: 1 << 17}}},
	}
}

func olderStatus() *Status {
	s := goldenStatus(GraphPool{})
	s.Machine, s.Shape, s.Memory, s.Reserve, s.Cache = Machine{}, Shape{}, nil, Reserve{}, Cache{}
	s.Disk, s.Formats, s.Drafts = Disk{}, Formats{}, Drafts{}
	s.KV.Cached, s.KV.Evicted = 0, 0
	return s
}

var goldenGraphs = GraphPool{
	Live: 127, MaxGraphs: 128, Bytes: 129 << 20, Budget: 256 << 20,
	Precaptured: 97, Rolled: 45, Evicted: 15, Failed: 3, Refused: 1,
	Exact: 69000, Padded: 1900, Eager: 50, CaptureRequests: 6, Roller: "capturing decode 5",
	CaptureS: 0.25, CaptureMedianMS: 2.25, GraphBytes: 754 << 10, RollS: 0.125,
}

// frame returns the whole frame.
func (g golden) frame(t *testing.T) []byte {
	if g.msg == nil {
		return frame([]byte(g.body))
	}
	b, err := AppendFrame(nil, g.msg)
	if err != nil {
		t.Fatal(err)
	}
	if g.leaves != "" {
		body := b[headerBytes:]
		for _, field := range strings.Fields(g.leaves) {
			body = without(body, field)
		}
		return frame(body)
	}
	return b
}

func (g golden) decode(body []byte) (any, error) {
	if g.from == "client" {
		return DecodeRequest(body)
	}
	return DecodeReply(body)
}

// lines returns the frame in the form of goldenFile.
func (g golden) lines(t *testing.T) string {
	b := g.frame(t)
	content := "refused " + g.refused
	if g.msg != nil {
		content = "json    " + asJSON(t, b[headerBytes:])
	}
	return fmt.Sprintf("\nframe   %s\nfrom    %s\nmeans   %s\n%s\nhex     % x\n", g.name, g.from, g.means, content, b)
}

// asJSON decodes a body without this package.
func asJSON(t *testing.T, body []byte) string {
	var m map[string]any
	if err := msgpack.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGoldenFrames(t *testing.T) {
	file := goldenHead
	for _, g := range goldens {
		file += g.lines(t)
	}
	if *update {
		if err := os.WriteFile(goldenFile, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readText(t, goldenFile); file != want {
		t.Errorf("encoding differs from %s at %q", goldenFile, firstDifference(file, want))
	}
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) { checkGolden(t, g) })
	}
}

// checkGolden decodes the frame recorded in the file.
func checkGolden(t *testing.T, g golden) {
	_, entry, _ := strings.Cut(readText(t, goldenFile), "frame   "+g.name+"\n")
	_, entry, _ = strings.Cut(entry, "\nhex     ")
	line, _, _ := strings.Cut(entry, "\n")
	body, err := ReadFrame(strings.NewReader(string(unhex(t, line))), MaxFrame, nil)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := g.decode(body)
	if code(err) != g.refused || g.msg != nil && !reflect.DeepEqual(msg, g.msg) {
		t.Errorf("%+v, %v, want %+v %s", msg, err, g.msg, g.refused)
	}
}

func firstDifference(got, want string) string {
	lines := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(lines) || line != lines[i] {
			return line
		}
	}
	return "the end"
}
