package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Metadata is the metadata of a GGUF file, by key. ok is false if the file lacks the key, or has a
// value of another type there.
type Metadata interface {
	String(key string) (value string, ok bool)
	Bool(key string) (value, ok bool)
	Uint(key string) (value uint64, ok bool)
	Strings(key string) (values []string, ok bool)
	Ints(key string) (values []int64, ok bool)
	Floats(key string) (values []float64, ok bool)
}

// GGUFSettings are the parts of a GGUF file's metadata that belong to the tokenizer and are no
// part of it.
type GGUFSettings struct {
	ChatTemplate string // "" if there is none
	// ToolsTemplate is the chat template for requests with tools; "" if there is none of its own.
	ToolsTemplate string
	Tokens        map[string]string // texts of special tokens by their names in templates, such as bos_token
	EndTokens     []int32           // ids that end an answer, in increasing order
}

// keys begins the keys of the tokenizer.
const keys = "tokenizer.ggml."

// FromGGUF makes a tokenizer from the metadata of a GGUF file. It gives the ids of the tokenizer.json
// that the file was converted from. Three things are not in the metadata: the options single_word,
// lstrip and rstrip of added tokens, except that those of Phi-3 strip the white space behind them, as
// in llama.cpp; normalizers, which follow from the name of the pre-tokenizer; and Metaspace, for which
// a space in front of each text stands. The metadata is not trusted. Errors name the key and wrap
// ErrInvalid or ErrUnsupported.
func FromGGUF(m Metadata) (*Tokenizer, GGUFSettings, error) {
	v, err := readGGUF(m)
	if err == nil {
		err = v.readSpecials()
	}
	if err != nil {
		return nil, GGUFSettings{}, fmt.Errorf("tokenizer: GGUF: %w", err)
	}
	t, err := v.build()
	if err != nil {
		return nil, GGUFSettings{}, fmt.Errorf("tokenizer: GGUF: %w", err)
	}
	settings, err := v.settings()
	if err != nil {
		return nil, GGUFSettings{}, fmt.Errorf("tokenizer: GGUF: %w", err)
	}
	return t, settings, nil
}

// ggufVocab is the vocabulary of a GGUF file.
type ggufVocab struct {
	m        Metadata
	pipeline ggufPipeline
	scored   bool // model llama
	merged   bool // model gemma4; else gpt2
	tokens   []string
	kinds    []ggufKind
	special  map[string]int32 // ids by the name in templates, such as bos_token
	ends     map[int32]bool
}

// ggufKind is an entry of token_type.
type ggufKind int64

const (
	kindNormal ggufKind = iota + 1
	kindUnknown
	kindControl
	kindUser // added and not special
	kindUnused
	kindByte
)

// readGGUF reads the tokens and finds the pipeline.
func readGGUF(m Metadata) (*ggufVocab, error) {
	v := &ggufVocab{m: m, special: map[string]int32{}, ends: map[int32]bool{}}
	var err error
	switch name, _ := m.String(keys + "model"); name {
	case "llama":
		v.scored = true
		v.pipeline = scoredPipeline(m)
	case "gemma4":
		v.merged = true
		v.pipeline = mergedPipeline()
	case "gpt2":
		v.pipeline, err = namedPipeline(m)
	case "":
		err = fmt.Errorf("%w: no %smodel", ErrInvalid, keys)
	default:
		err = fmt.Errorf("%w: %smodel %.40q, want llama, gpt2 or gemma4", ErrUnsupported, keys, name)
	}
	if err != nil {
		return nil, err
	}
	return v, v.readTokens()
}

// maxGGUFText bounds the bytes of all tokens, and of all merges.
const maxGGUFText = maxFile

// padding matches the tokens of rows of the embedding that tokenizer.json has none for. Ollama's converters write them as
// added tokens, llama.cpp's as unused ones.
var padding = regexp.MustCompile(`^\[PAD[0-9]+\]$`)

// readTokens reads tokens and their types. It leaves out empty tokens, as converters write unused
// rows of the embedding.
func (v *ggufVocab) readTokens() error {
	v.tokens, _ = v.m.Strings(keys + "tokens")
	kinds, _ := v.m.Ints(keys + "token_type")
	switch {
	case len(v.tokens) == 0:
		return fmt.Errorf("%w: no %stokens", ErrInvalid, keys)
	case len(v.tokens) > maxVocab:
		return fmt.Errorf("%w: %stokens: %d tokens, at most %d are allowed",
			ErrInvalid, keys, len(v.tokens), maxVocab)
	case len(kinds) != len(v.tokens):
		return fmt.Errorf("%w: %stoken_type has %d entries for %d tokens", ErrInvalid, keys, len(kinds), len(v.tokens))
	}
	if err := checkTexts("tokens", v.tokens); err != nil {
		return err
	}
	v.kinds = make([]ggufKind, len(kinds))
	for id, n := range kinds {
		v.kinds[id] = ggufKind(n)
		if v.tokens[id] == "" || v.kinds[id] == kindUser && padding.MatchString(v.tokens[id]) {
			v.kinds[id] = kindUnused
		}
		if v.kinds[id] < kindNormal || v.kinds[id] > kindByte {
			return fmt.Errorf("%w: %stoken_type: token %d has type %d", ErrInvalid, keys, id, n)
		}
	}
	return nil
}

// checkTexts refuses texts that are too long together or not UTF-8.
func checkTexts(key string, list []string) error {
	bytes := 0
	for i, s := range list {
		if bytes += len(s); bytes > maxGGUFText {
			return fmt.Errorf("%w: %s%s: more than %d bytes", ErrInvalid, keys, key, maxGGUFText)
		}
		if !utf8.ValidString(s) {
			return fmt.Errorf("%w: %s%s: entry %d is not UTF-8", ErrInvalid, keys, key, i)
		}
	}
	return nil
}

// build makes the tokenizer from the configuration that tokenizer.json would hold.
func (v *ggufVocab) build() (*Tokenizer, error) {
	model, err := v.model()
	if err != nil {
		return nil, err
	}
	c := &config{Version: "1.0", AddedTokens: v.added(), Normalizer: v.pipeline.normalizer,
		PreTokenizer: v.pipeline.pieces, Decoder: v.pipeline.decoder}
	around, err := v.around()
	if err != nil {
		return nil, err
	}
	t, err := buildWith(c, modelConfig{vocab: model.Vocab, characters: model.ByteFallback, bpe: model})
	if err != nil {
		return nil, err
	}
	t.post = around
	return t, nil
}

// model returns the model's part of the configuration. Added tokens are outside of its vocabulary,
// unless a merge names them.
func (v *ggufVocab) model() (*bpeConfig, error) {
	c := &bpeConfig{Vocab: map[string]int32{}, IgnoreMerges: v.pipeline.ignoreMerges}
	all := make(map[string]int32, len(v.tokens))
	for id, content := range v.tokens {
		if v.kinds[id] == kindUnused {
			continue
		}
		if first, twice := all[content]; twice {
			return nil, fmt.Errorf("%w: %stokens: token %.40q has the ids %d and %d",
				ErrInvalid, keys, content, first, id)
		}
		all[content] = int32(id)
		if v.kinds[id] == kindNormal || v.kinds[id] == kindByte {
			c.Vocab[content] = int32(id)
		}
	}
	var err error
	if v.scored {
		c.ByteFallback = true
		c.Merges, err = v.scoredMerges(c.Vocab)
	} else {
		c.ByteFallback = v.merged
		c.Merges, err = v.namedMerges()
		for _, p := range c.Merges {
			for _, content := range []string{p[0], p[1], p[0] + p[1]} {
				if id, ok := all[content]; ok {
					c.Vocab[content] = id
				}
			}
		}
	}
	return c, err
}

// namedMerges reads the merges of models gpt2 and gemma4.
func (v *ggufVocab) namedMerges() ([]mergePair, error) {
	list, ok := v.m.Strings(keys + "merges")
	if !ok {
		return nil, fmt.Errorf("%w: no %smerges", ErrInvalid, keys)
	}
	if err := checkMergeCount(len(list)); err != nil {
		return nil, err
	}
	if err := checkTexts("merges", list); err != nil {
		return nil, err
	}
	merges := make([]mergePair, len(list))
	for i, s := range list {
		left, right, two := strings.Cut(s, " ")
		if !two || strings.Contains(right, " ") {
			return nil, fmt.Errorf("%w: %smerges: merge %.60q has not two parts", ErrInvalid, keys, s)
		}
		merges[i] = mergePair{left, right}
	}
	return merges, nil
}

// added returns the added tokens. They are found before text is normalised: converters write them in
// normalised form.
func (v *ggufVocab) added() (list []addedToken) {
	strips := v.stripsBehind()
	for id, kind := range v.kinds {
		if kind != kindControl && kind != kindUnknown && kind != kindUser {
			continue
		}
		id, content := int32(id), v.tokens[id]
		list = append(list, addedToken{ID: &id, Content: content, Special: kind != kindUser,
			RStrip: strips && !slices.Contains(phi3Plain, content)})
	}
	return list
}

// phi3Plain are the added tokens of Phi-3 that strip nothing.
var phi3Plain = []string{"<unk>", "<s>", "<|endoftext|>"}

// stripsBehind reports whether the added tokens strip the white space behind them. Metadata lacks it;
// llama.cpp finds it out by the model's name, and the architecture finds models with other names.
func (v *ggufVocab) stripsBehind() bool {
	name, _ := v.m.String("general.name")
	name = strings.ToLower(name)
	architecture, _ := v.m.String("general.architecture")
	return v.scored && (architecture == "phi3" || strings.Contains(name, "phi-3") || strings.Contains(name, "phi3"))
}

// settings returns the chat template and the texts of special tokens.
func (v *ggufVocab) settings() (GGUFSettings, error) {
	s := GGUFSettings{Tokens: map[string]string{}, EndTokens: slices.Sorted(maps.Keys(v.ends))}
	for key, text := range map[string]*string{
		"tokenizer.chat_template": &s.ChatTemplate, "tokenizer.chat_template.tool_use": &s.ToolsTemplate,
	} {
		if *text, _ = v.m.String(key); len(*text) > maxFile || !utf8.ValidString(*text) {
			return s, fmt.Errorf("%w: %s: %d bytes, or not UTF-8", ErrInvalid, key, len(*text))
		}
	}
	for name, id := range v.special {
		s.Tokens[name] = v.tokens[id]
	}
	return s, nil
}

// toJSON returns the JSON of v, which has only maps, lists, strings and booleans.
func toJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
