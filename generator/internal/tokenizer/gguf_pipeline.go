package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// ggufPipeline is the way of a text to pieces and of tokens to text, as tokenizer.json has it.
type ggufPipeline struct {
	normalizer, pieces, decoder json.RawMessage
	ignoreMerges                bool
	bos                         bool // default of add_bos_token
}

// object is a JSON object.
type object map[string]any

// scoredPipeline returns the pipeline of model llama: that of Llama 2's tokenizer.json. Without
// add_space_prefix no space is put in front of a text, and none is dropped.
func scoredPipeline(m Metadata) ggufPipeline {
	prepend, found := m.Bool(keys + "add_space_prefix")
	prepend = prepend || !found
	normalizers, decoders := []object{replaceSpaces}, byteDecoders
	if prepend {
		normalizers = append([]object{{"type": "Prepend", "prepend": space}}, normalizers...)
		decoders = append(slices.Clone(decoders), object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	return ggufPipeline{normalizer: toJSON(object{"type": "Sequence", "normalizers": normalizers}),
		decoder: toJSON(object{"type": "Sequence", "decoders": decoders}), bos: true}
}

// mergedPipeline returns the pipeline of model gemma4: that of Gemma 4's tokenizer.json, whose Split at spaces cuts
// nothing, since its normalizer has replaced them. Merges go over the whole text. llama.cpp merges nothing over the
// borders of runs of line feeds, and takes such a run whole where it is a token; the metadata asks for neither.
func mergedPipeline() ggufPipeline {
	return ggufPipeline{normalizer: toJSON(replaceSpaces), bos: true,
		decoder: toJSON(object{"type": "Sequence", "decoders": byteDecoders})}
}

// The parts of pipelines over characters.
var (
	replaceSpaces = object{"type": "Replace", "pattern": object{"String": " "}, "content": space}
	byteDecoders  = []object{{"type": "Replace", "pattern": object{"String": space}, "content": " "},
		{"type": "ByteFallback"}, {"type": "Fuse"}}
)

// namedPipeline returns the pipeline of model gpt2 by the name of its pre-tokenizer.
func namedPipeline(m Metadata) (ggufPipeline, error) {
	name, _ := m.String(keys + "pre")
	p, ok := ggufPieces[name]
	if !ok {
		return ggufPipeline{}, fmt.Errorf("%w: %spre %.40q: no such pre-tokenizer is known: take the model as a directory "+
			"with its tokenizer.json", ErrUnsupported, keys, name)
	}
	members := append(p.before[:len(p.before):len(p.before)],
		object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": p.gpt2})
	out := ggufPipeline{pieces: toJSON(object{"type": "Sequence", "pretokenizers": members}),
		decoder: toJSON(object{"type": "ByteLevel"}), ignoreMerges: p.ignoreMerges, bos: p.bos}
	if p.nfc {
		out.normalizer = toJSON(object{"type": "NFC"})
	}
	return out, nil
}

// pieces are the pieces of a pre-tokenizer for BPE over bytes.
type pieces struct {
	nfc          bool     // text is brought to Unicode's form C
	before       []object // members before ByteLevel
	gpt2         bool     // ByteLevel cuts by GPT-2's pattern
	ignoreMerges bool
	bos          bool // texts begin with BOS by default
}

// ggufPieces are the pre-tokenizers by their names in GGUF files. Patterns, ignore_merges and BOS
// are those of llama.cpp (llama-vocab.cpp). If llama.cpp only approximates a pattern, the published
// one stands here, and so does form C, which llama.cpp lacks.
var ggufPieces = map[string]pieces{
	"llama-bpe":        llama3Pieces,
	"llama3":           llama3Pieces,
	"llama-v3":         llama3Pieces,
	"falcon3":          llama3Pieces,
	"pixtral":          llama3Pieces,
	"dbrx":             {before: splits(llama3Pattern)}, // Phi-4
	"smaug-bpe":        {before: splits(llama3Pattern)},
	"glm4":             {before: splits(llama3Pattern), ignoreMerges: true},
	"chatglm-bpe":      {before: splits(llama3Pattern)},
	"qwen2":            {nfc: true, before: splits(qwen2Pattern)},
	"deepseek-r1-qwen": {before: splits(qwen2Pattern)},
	"tekken":           {before: splits(tekkenPattern), ignoreMerges: true, bos: true},
	"gpt-4o":           {before: splits(gpt4oPattern)}, // Phi-4-mini
	"llama4":           {before: splits(gpt4oPattern)},
	"gpt-2":            {gpt2: true},
	"phi-2":            {gpt2: true},
	"mpt":              {nfc: true, gpt2: true}, // both have the tokenizer of GPT-NeoX
	"olmo":             {nfc: true, gpt2: true},
	"smollm":           digitPieces,
	"starcoder":        digitPieces,
	"refact":           digitPieces,
	"codeshell":        digitPieces,
	"minerva-7b":       digitPieces,
	"command-r":        {nfc: true, before: digits, gpt2: true},
	"deepseek-llm": {before: append(splits("[\r\n]", `\s?[`+deepSeekLetters+`]+`,
		`\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, cjkPattern), digits...)},
	"deepseek-v3":    {before: splits(`\p{N}{1,3}`, "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", deepSeek3Pattern)},
	"deepseek-coder": {before: append(splits("[\r\n]", `\s?\p{L}+`, `\s?\p{P}+`, cjkPattern), digits...)},
	"default":        {before: splits(`[\p{P}\$\+<=>\^~\|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`)},
}

var (
	llama3Pieces = pieces{before: splits(llama3Pattern), ignoreMerges: true, bos: true}
	digits       = []object{{"type": "Digits", "individual_digits": true}}
	digitPieces  = pieces{before: digits, gpt2: true}
)

// splits returns a Split for each pattern, of which matches and the texts between them are pieces.
func splits(patterns ...string) (list []object) {
	for _, p := range patterns {
		list = append(list, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	return list
}

const (
	// upper and lower are the letters that a word may begin with, and end with, in the patterns of
	// Mistral NeMo and GPT-4o.
	upper       = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lower       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	wordStarter = `[^\r\n\p{L}\p{N}]?`
	contracted  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	caseOthers  = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	tekkenPattern = wordStarter + upper + `*` + lower + `+|` + wordStarter + upper + `+` + lower + `*|\p{N}` + caseOthers
	gpt4oPattern  = wordStarter + upper + `*` + lower + `+` + contracted + `|` +
		wordStarter + upper + `+` + lower + `*` + contracted + `|\p{N}{1,3}` + caseOthers

	deepSeek3Pattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" +
		" ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

	cjkPattern = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"

	// deepSeekLetters are letters with two cases. Escapes keep characters that Unicode's form C replaces.
	deepSeekLetters = "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF" +
		"\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5" +
		"\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF" +
		"\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57" +
		"\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3" +
		"\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124" +
		"\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B" +
		"\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E" +
		"\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F" +
		"\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2" +
		"\U000118A0-\U000118DF\U0001E900-\U0001E943"
)
