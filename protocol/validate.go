package protocol

import "fmt"

// Values of fields that a request leaves out.
const (
	DefaultMaxTokens     = 256
	DefaultTemperature   = 0.8
	DefaultTopK          = 0 // off
	DefaultTopP          = 1 // off
	DefaultMinP          = 0 // off
	DefaultRepeatPenalty = 1 // off
)

// Bounds of sampling that do not depend on the model.
const (
	MaxTemperature   = 100
	MaxRepeatPenalty = 100
	MaxPenalty       = 2 // of presence_penalty and frequency_penalty, and -2 the least
	MaxBias          = 100
	MaxBiases        = 1024
	// PenaltyWindow is the number of latest tokens, of prompt and completion together,
	// that repeat_penalty considers.
	PenaltyWindow = 64
)

// Params are a request's fields with the defaults applied.
type Params struct {
	MaxTokens     int // of the completion; the context may end it earlier
	Temperature   float64
	TopK          int
	TopP          float64
	MinP          float64
	RepeatPenalty float64
	Seed          uint64 // valid only if HasSeed
	HasSeed       bool   // false: the generator draws a seed
	Stop          []string
	Logprobs      int  // alternatives to report per token
	HasLogprobs   bool // false: tokens have neither logprob nor top
	Echo          bool
	IgnoreEOS     bool
	Cache         string // one of the Cache… values

	PresencePenalty, FrequencyPenalty float64
	LogitBias                         []Bias
	User                              string // within the peer's uid
	DraftTokens                       int    // guesses of a step, at most; 0 to MaxDrafts
}

// DefaultSampling returns the values of fields that a request leaves out.
func DefaultSampling() Sampling {
	return Sampling{
		Temperature: DefaultTemperature, TopK: DefaultTopK, TopP: DefaultTopP, MinP: DefaultMinP,
		RepeatPenalty: DefaultRepeatPenalty,
	}
}

// Params applies the defaults. The values are within bounds if Validate returns nil.
func (g *Generate) Params() Params { return g.ParamsWith(DefaultSampling()) }

// ParamsWith is Params with d as the defaults of sampling: a conversation has the model's own.
func (g *Generate) ParamsWith(d Sampling) Params {
	return Params{
		MaxTokens:     or(g.MaxTokens, DefaultMaxTokens),
		Temperature:   or(g.Temperature, d.Temperature),
		TopK:          or(g.TopK, d.TopK),
		TopP:          or(g.TopP, d.TopP),
		MinP:          or(g.MinP, d.MinP),
		RepeatPenalty: or(g.RepeatPenalty, d.RepeatPenalty),
		Seed:          or(g.Seed, 0),
		HasSeed:       g.Seed != nil,
		Stop:          g.Stop,
		Logprobs:      or(g.Logprobs, 0),
		HasLogprobs:   g.Logprobs != nil,
		Echo:          g.Echo,
		IgnoreEOS:     g.IgnoreEOS,
		Cache:         or(g.Cache, CacheOn),

		PresencePenalty:  or(g.PresencePenalty, 0),
		FrequencyPenalty: or(g.FrequencyPenalty, 0),
		LogitBias:        g.LogitBias,
		User:             or(g.User, ""),
		DraftTokens:      g.Draft.Most(),
	}
}

func or[T any](p *T, missing T) T {
	if p == nil {
		return missing
	}
	return *p
}

// Validate checks every field against the bounds of PROTOCOL.md and l, without
// tokenizing. The error names the field and carries the request's id; its code is
// CodePromptTooLong or CodeBadRequest.
func (g *Generate) Validate(l Limits) *Error {
	for _, check := range []func(Limits) *Error{
		g.checkPrompt, g.checkTokens, g.checkMessages, g.checkTemplate, g.checkSampling, g.checkPenalties, g.checkBias,
		g.checkStop, g.checkCache, g.checkUser, g.checkFormat, g.checkTools, g.checkReasoning,
		g.checkDraft,
	} {
		if e := check(l); e != nil {
			return e.For(g.ID)
		}
	}
	return nil
}

// checkPrompt checks that exactly one kind of prompt is given, and the length of a text.
func (g *Generate) checkPrompt(l Limits) *Error {
	const hint = "give one of prompt, a text, tokens, a list of token ids, and messages, a conversation"
	given := 0
	for _, is := range []bool{g.Prompt != nil, g.Tokens != nil, g.Messages != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return Errorf(CodeBadRequest, hint, "more than one of prompt, tokens and messages is given")
	case given == 0:
		return Errorf(CodeBadRequest, hint, "none of prompt, tokens and messages is given")
	case g.Special != nil && g.Prompt == nil:
		return Errorf(CodeBadRequest, "leave it out; each message has a field special of its own",
			"special is given without prompt")
	case g.Prompt == nil:
		return nil
	case *g.Prompt == "":
		return Errorf(CodeBadRequest, hint, "prompt is empty")
	}
	return checkText("prompt", len(*g.Prompt), l)
}

// checkMessages checks a prompt given as a conversation.
func (g *Generate) checkMessages(l Limits) *Error {
	if g.Messages == nil {
		return nil
	}
	if n := len(g.Messages); n < 1 || n > MaxMessages {
		return outOfBounds("the number of messages", n, 1, MaxMessages)
	}
	bytes := 0
	for i := range g.Messages {
		m := &g.Messages[i]
		if n := len(m.Role); n < 1 || n > MaxRoleBytes {
			return Errorf(CodeBadRequest, "correct the field",
				"messages[%d].role has %d bytes: it must have 1 to %d", i, n, MaxRoleBytes)
		}
		if e := m.check(i); e != nil {
			return e
		}
		bytes += m.textBytes()
	}
	return checkText("messages", bytes, l)
}

// checkTemplate checks the variables for the chat template.
func (g *Generate) checkTemplate(Limits) *Error {
	if g.Messages == nil && len(g.Template) > 0 {
		return Errorf(CodeBadRequest, "leave it out, or send messages",
			"template is given without messages, which alone are in the form of the model's chat template")
	}
	return g.Template.Validate()
}

// Validate checks the text's length against l. The error's code is CodePromptTooLong.
func (t *Tokenize) Validate(l Limits) *Error { return checkText("text", len(t.Text), l) }

func checkText(field string, bytes int, l Limits) *Error {
	if bytes <= l.PromptBytes {
		return nil
	}
	hint := fmt.Sprintf("shorten it, or start the generator with a longer context than %d tokens", l.Context)
	return Errorf(CodePromptTooLong, hint,
		"%s has %d bytes: at most %d can fit the context", field, bytes, l.PromptBytes)
}

// checkTokens checks a prompt given as tokens. One token of the context has to remain for
// the completion.
func (g *Generate) checkTokens(l Limits) *Error {
	if g.Tokens == nil {
		return nil
	}
	if len(g.Tokens) == 0 {
		return Errorf(CodeBadRequest, "give at least one token", "tokens is empty")
	}
	if e := CheckPromptTokens(len(g.Tokens), l); e != nil {
		return e
	}
	return checkIDs(g.Tokens, l)
}

// checkIDs checks that each token is one of the vocabulary.
func checkIDs(tokens TokenIDs, l Limits) *Error {
	for i, t := range tokens {
		if t < 0 || int(t) >= l.Vocab {
			return outOfBounds(fmt.Sprintf("tokens[%d]", i), t, 0, l.Vocab-1)
		}
	}
	return nil
}

// CheckPromptTokens returns an error, without an id, if a prompt of n tokens leaves no
// token of the context for a completion. A generator calls it after tokenizing.
func CheckPromptTokens(n int, l Limits) *Error {
	if n < l.Context {
		return nil
	}
	return Errorf(CodePromptTooLong, "shorten the prompt, or start the generator with a longer context",
		"the prompt has %d tokens: the context holds %d, one of them for the completion", n, l.Context)
}

func (g *Generate) checkSampling(l Limits) *Error {
	p := g.Params()
	if g.MaxTokens == nil {
		p.MaxTokens = 1 // the default is cut by the context, not refused
	}
	switch {
	case p.MaxTokens < 1 || p.MaxTokens > l.Context:
		return outOfBounds("max_tokens", p.MaxTokens, 1, l.Context)
	case !upTo(MaxTemperature, p.Temperature):
		return outOfBounds("temperature", p.Temperature, 0, MaxTemperature)
	case p.TopK < 0 || p.TopK > l.Vocab:
		return outOfBounds("top_k", p.TopK, 0, l.Vocab)
	case p.TopP == 0 || !upTo(1, p.TopP):
		return outOfBounds("top_p", p.TopP, "more than 0", 1)
	case !upTo(1, p.MinP):
		return outOfBounds("min_p", p.MinP, 0, 1)
	case p.RepeatPenalty == 0 || !upTo(MaxRepeatPenalty, p.RepeatPenalty):
		return outOfBounds("repeat_penalty", p.RepeatPenalty, "more than 0", MaxRepeatPenalty)
	case p.Logprobs < 0 || p.Logprobs > MaxLogprobs:
		return outOfBounds("logprobs", p.Logprobs, 0, MaxLogprobs)
	}
	return nil
}

// upTo reports whether 0 <= v <= high; false for NaN.
func upTo(high, v float64) bool { return v >= 0 && v <= high }

func (g *Generate) checkPenalties(Limits) *Error {
	for field, p := range map[string]*float64{
		"presence_penalty": g.PresencePenalty, "frequency_penalty": g.FrequencyPenalty,
	} {
		if v := or(p, 0); !(v >= -MaxPenalty && v <= MaxPenalty) {
			return outOfBounds(field, v, -MaxPenalty, MaxPenalty)
		}
	}
	return nil
}

func (g *Generate) checkBias(l Limits) *Error {
	if n := len(g.LogitBias); n > MaxBiases {
		return Errorf(CodeBadRequest, "leave some out", "logit_bias has %d tokens: it may have %d", n, MaxBiases)
	}
	seen := make(map[int32]bool, len(g.LogitBias))
	for i, b := range g.LogitBias {
		switch field := fmt.Sprintf("logit_bias[%d]", i); {
		case b.Token < 0 || int(b.Token) >= l.Vocab:
			return outOfBounds(field+".token", b.Token, 0, l.Vocab-1)
		case !(b.Bias >= -MaxBias && b.Bias <= MaxBias):
			return outOfBounds(field+".bias", b.Bias, -MaxBias, MaxBias)
		case seen[b.Token]:
			return Errorf(CodeBadRequest, "give each token one bias", "logit_bias has token %d twice", b.Token)
		}
		seen[b.Token] = true
	}
	return nil
}

func (g *Generate) checkUser(Limits) *Error {
	if n := len(or(g.User, "")); n > MaxUserBytes {
		return tooLong("user", n, MaxUserBytes)
	}
	return nil
}

func (g *Generate) checkStop(Limits) *Error {
	if len(g.Stop) > MaxStops {
		return Errorf(CodeBadRequest, "leave some out",
			"stop has %d strings: it may have %d", len(g.Stop), MaxStops)
	}
	for i, s := range g.Stop {
		if len(s) == 0 || len(s) > MaxStopBytes {
			return Errorf(CodeBadRequest, "correct the field",
				"stop[%d] has %d bytes: it must have 1 to %d", i, len(s), MaxStopBytes)
		}
	}
	return nil
}

func (g *Generate) checkCache(Limits) *Error {
	switch or(g.Cache, CacheOn) {
	case CacheOn, CacheRead, CacheOff:
		return nil
	}
	return Errorf(CodeBadRequest, "correct the field or leave it out",
		"cache is %.64q: it must be on, read or off", *g.Cache)
}

func outOfBounds(field string, value, low, high any) *Error {
	return Errorf(CodeBadRequest, "correct the field or leave it out",
		"%s is %v: it must be %v to %v", field, value, low, high)
}
