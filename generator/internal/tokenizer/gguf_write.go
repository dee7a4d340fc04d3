package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/marked"
)

// GGUFPair is a key of a GGUF file's metadata and its value: a string, bool, uint32, []string, []float32 or []int32.
type GGUFPair struct {
	Key   string
	Value any
}

// GGUFModel is what the metadata of a tokenizer holds beside tokenizer.json.
type GGUFModel struct {
	Architecture string            // as GGUF names it
	Rows         int               // rows of the embedding, which are the ids
	ChatTemplate string            // "" if there is none
	Tokens       map[string]string // texts of special tokens by their names in templates, such as bos_token
	EndTokens    []int32           // ids that end an answer
}

// ToGGUF returns the metadata of a GGUF file for tokenizer.json of fsys, as llama.cpp's converter writes it, but with
// scores from the order of merges where that has none. It is read again by [FromGGUF], and must then give the
// same ids for text. Warnings say if spaces at its begin or beside control tokens differ, and which end tokens have no
// place in the metadata. Errors wrap ErrInvalid, ErrUnsupported, or the error of fsys.
func ToGGUF(fsys fs.FS, m GGUFModel) (pairs []GGUFPair, warnings []string, err error) {
	c, err := readConfig(fsys)
	if err == nil {
		w := ggufWriter{config: c, model: m}
		if pairs, err = w.write(); err == nil {
			return pairs, w.warnings, nil
		}
	}
	return nil, nil, fmt.Errorf("tokenizer: %s as GGUF: %w", fileName, err)
}

// ggufWriter writes a tokenizer as metadata.
type ggufWriter struct {
	config   *config
	model    GGUFModel
	bpe      *bpeConfig
	own      *Tokenizer // that of tokenizer.json
	tokens   []string
	kinds    []int32
	warnings []string
}

func (w *ggufWriter) write() ([]GGUFPair, error) {
	err := checkVersion(w.config)
	var model modelConfig
	if err == nil {
		model, err = decodeModel(w.config.Model)
	}
	if err == nil {
		w.own, err = buildWith(w.config, model)
	}
	if w.bpe = model.bpe; err == nil && w.bpe == nil {
		err = fmt.Errorf("%w: a model that is not BPE", ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	w.setTokens()
	pairs, err := w.around()
	if err != nil {
		return nil, err
	}
	if w.model.ChatTemplate != "" {
		pairs = append(pairs, GGUFPair{"tokenizer.chat_template", w.model.ChatTemplate})
	}
	pairs = append(pairs, GGUFPair{keys + "tokens", w.tokens}, GGUFPair{keys + "token_type", w.kinds})
	switch {
	case w.isGemma4():
		return w.merged(pairs)
	case w.bpe.ByteFallback:
		return w.scored(pairs)
	}
	return w.named(pairs)
}

// setTokens sets the tokens by id, one for each row of the embedding, and their types. Added tokens without a row are
// left out.
func (w *ggufWriter) setTokens() {
	w.tokens, w.kinds = make([]string, w.model.Rows), make([]int32, w.model.Rows)
	for id := range w.tokens {
		w.tokens[id], w.kinds[id] = fmt.Sprintf("[PAD%d]", id), int32(kindUnused)
	}
	set := func(content string, id int32, kind ggufKind) {
		if int(id) < len(w.tokens) {
			w.tokens[id], w.kinds[id] = content, int32(kind)
		}
	}
	for content, id := range w.bpe.Vocab {
		kind := kindNormal
		if _, isByte := byteOfContent(content); isByte && w.bpe.ByteFallback {
			kind = kindByte
		}
		set(content, id, kind)
	}
	for i := range w.config.AddedTokens {
		a := &w.config.AddedTokens[i]
		kind := kindUser
		switch {
		case w.isGemma4() && slices.Contains(gemma4Visible, a.Content):
		case w.bpe.ByteFallback && !w.isGemma4() && w.bpe.UnkToken != nil && *w.bpe.UnkToken == a.Content:
			kind = kindUnknown
		case a.isControl():
			kind = kindControl
		}
		set(a.Content, *a.ID, kind)
	}
}

// around returns the ids of special tokens, and which of them begin and end each text.
func (w *ggufWriter) around() (pairs []GGUFPair, err error) {
	ids := map[string]int32{}
	for _, s := range ggufSpecials {
		id, ok := w.own.ID(w.model.Tokens[s.name])
		if !ok && s.name == "bos_token" && len(w.own.post.prefix) == 1 {
			id, ok = w.own.post.prefix[0], true
		}
		if !ok && s.name == "eos_token" && len(w.model.EndTokens) > 0 {
			id, ok = w.model.EndTokens[0], true
		}
		if ok && s.name != "" && int(id) < w.model.Rows {
			ids[s.name] = id
			pairs = append(pairs, GGUFPair{keys + s.key, uint32(id)})
		}
	}
	for _, end := range []struct {
		key, name string
		list      []int32
	}{{"add_bos_token", "bos_token", w.own.post.prefix}, {"add_eos_token", "eos_token", w.own.post.suffix}} {
		id, ok := ids[end.name]
		if len(end.list) > 0 && !(ok && slices.Equal(end.list, []int32{id})) {
			return nil, fmt.Errorf("%w: post_processor: it puts ids %v around a text, and GGUF can only name %s",
				ErrUnsupported, end.list, end.name)
		}
		add := len(end.list) > 0
		if !add && w.isGemma4() && end.name == "bos_token" && ok {
			add = true
			w.warnings = append(w.warnings, "a text that is no conversation begins with the token bos, as with all models of "+
				"this architecture, and with tokenizer.json it does not")
		}
		pairs = append(pairs, GGUFPair{keys + end.key, add})
	}
	return w.ends(pairs, ids), nil
}

// ends adds the end token that readers would not find by its text, and warns of a second one.
func (w *ggufWriter) ends(pairs []GGUFPair, ids map[string]int32) []GGUFPair {
	eos, found := ids["eos_token"]
	_, turn := ids["eot_token"]
	for _, id := range w.model.EndTokens {
		switch {
		case found && id == eos || int(id) >= len(w.tokens) || slices.Contains(ggufEnds, w.tokens[id]):
		case ggufKind(w.kinds[id]) == kindUnused: // it has no text that a reader could end at
		case turn:
			w.warnings = append(w.warnings, fmt.Sprintf("the end token %d, %q, has no place in the metadata", id,
				w.tokens[id]))
		default:
			turn = true
			pairs = append(pairs, GGUFPair{keys + "eot_token_id", uint32(id)})
		}
	}
	return pairs
}

// scored writes a model over characters, with scores in the order of its merges.
func (w *ggufWriter) scored(pairs []GGUFPair) ([]GGUFPair, error) {
	pairs = append(pairs, GGUFPair{keys + "model", "llama"}, GGUFPair{keys + "pre", "default"},
		GGUFPair{keys + "scores", w.scores()})
	var failed error
	for _, prefix := range []bool{true, false} {
		with := append(slices.Clone(pairs), GGUFPair{keys + "add_space_prefix", prefix})
		err := w.check(with)
		if err == nil {
			return with, nil
		}
		failed = cmp.Or(failed, err)
	}
	return nil, failed
}

// merges returns the merges as texts.
func (w *ggufWriter) merges() ([]string, error) {
	merges := make([]string, len(w.bpe.Merges))
	for i, p := range w.bpe.Merges {
		if strings.Contains(p[0]+p[1], " ") {
			return nil, fmt.Errorf("%w: merges: %q has a space", ErrUnsupported, p)
		}
		merges[i] = p[0] + " " + p[1]
	}
	return merges, nil
}

// scores returns the scores of tokens: each merge, and then each other token, has one less than the one before it.
func (w *ggufWriter) scores() []float32 {
	scores, next := make([]float32, len(w.tokens)), float32(0)
	scoredAlready := make([]bool, len(w.tokens))
	score := func(id int32) {
		if int(id) < len(scores) && !scoredAlready[id] && ggufKind(w.kinds[id]) == kindNormal {
			scores[id], scoredAlready[id] = next, true
			next--
		}
	}
	for _, p := range w.bpe.Merges {
		if id, ok := w.bpe.Vocab[p[0]+p[1]]; ok {
			score(id)
		}
	}
	for id, kind := range w.kinds {
		switch ggufKind(kind) {
		case kindNormal:
			score(int32(id))
		case kindByte, kindUnknown:
		case kindUnused:
			scores[id] = -10000 // as the converter
		default:
			scores[id] = -1000
		}
	}
	return scores
}

// preferred orders the names of pre-tokenizers: of those that cut alike, the first is written. Other names follow.
var preferred = []string{"llama-bpe", "qwen2", "tekken", "gpt-4o", "dbrx", "deepseek-r1-qwen", "gpt-2", "olmo", "smollm",
	"command-r", "deepseek-llm", "deepseek-coder", "default"}

// named writes a model over bytes, with its merges and the name of its pre-tokenizer.
func (w *ggufWriter) named(pairs []GGUFPair) ([]GGUFPair, error) {
	merges, err := w.merges()
	if err != nil {
		return nil, err
	}
	pairs = append(pairs, GGUFPair{keys + "model", "gpt2"}, GGUFPair{keys + "merges", merges})
	own, err := pipelineOf(w.config.Normalizer, w.config.PreTokenizer)
	if err != nil {
		return nil, err
	}
	for _, name := range preferred {
		m := ggufMetadata{keys + "pre": name}
		p, err := namedPipeline(m)
		if err != nil {
			return nil, err
		}
		if other, err := pipelineOf(p.normalizer, p.pieces); err == nil && other == own &&
			p.ignoreMerges == w.bpe.IgnoreMerges {
			pairs = append(pairs, GGUFPair{keys + "pre", name})
			return pairs, w.check(pairs)
		}
	}
	return nil, fmt.Errorf("%w: pre_tokenizer: GGUF has no name for %.200s", ErrUnsupported, own)
}

// pipelineOf describes a normalizer and a pre-tokenizer. Two descriptions are equal if both have the same members with
// the same options.
func pipelineOf(normalizer, pieces json.RawMessage) (string, error) {
	rewrites, err := describe(normalizer, "normalizers")
	if err != nil {
		return "", err
	}
	cuts, err := describe(pieces, "pretokenizers")
	return rewrites + " then " + cuts, err
}

// describe returns the members of a component as JSON, without options that change no id.
func describe(raw json.RawMessage, key string) (string, error) {
	list, err := members(raw, key)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, m := range list {
		var fields map[string]any
		if err := json.Unmarshal(m, &fields); err != nil {
			return "", fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if _, ok := fields["use_regex"]; !ok && fields["type"] == "ByteLevel" {
			fields["use_regex"] = true
		}
		delete(fields, "trim_offsets")
		text.Write(toJSON(fields))
	}
	return text.String(), nil
}

// check reads the metadata as a reader of GGUF would, and compares ids with those of tokenizer.json.
func (w *ggufWriter) check(pairs []GGUFPair) error {
	m := ggufMetadata{"general.architecture": w.model.Architecture}
	for _, p := range pairs {
		m[p.Key] = p.Value
	}
	read, _, err := FromGGUF(m)
	if err != nil {
		return fmt.Errorf("%w: the metadata cannot be read again: %w", ErrUnsupported, err)
	}
	if read.model.bpe != nil && w.bpe.ByteFallback && !w.isGemma4() {
		if err := w.checkMerges(m); err != nil {
			return err
		}
	}
	for _, text := range probes {
		if !sameIDs(w.own, read, marked.Data(text), !w.isGemma4()) {
			return fmt.Errorf("%w: it gives other ids for %.40q than its metadata would", ErrUnsupported, text)
		}
	}
	w.compareSpaces(read)
	return nil
}

// checkMerges compares the merges with those that follow from tokens and scores.
func (w *ggufWriter) checkMerges(m ggufMetadata) error {
	v, err := readGGUF(m)
	if err != nil {
		return err
	}
	model, err := v.model()
	if err != nil {
		return err
	}
	derived := make(map[mergePair]bool, len(model.Merges))
	for _, p := range model.Merges {
		derived[p] = true
	}
	last, own := float32(1), 0
	scores, _ := m[keys+"scores"].([]float32)
	for _, p := range w.bpe.Merges {
		id, ok := model.Vocab[p[0]+p[1]]
		if !ok {
			continue // of a token that text never becomes
		}
		if own++; !derived[p] || scores[id] > last {
			return fmt.Errorf("%w: merges: that of %q and %q does not follow from scores of tokens", ErrUnsupported,
				p[0], p[1])
		}
		last = scores[id]
	}
	if own != len(derived) {
		return fmt.Errorf("%w: merges: there are %d, and scores of tokens give %d", ErrUnsupported, own, len(derived))
	}
	return nil
}

// compareSpaces warns if a space at the begin of a text, or a space or a letter beside an added token, gives other ids.
func (w *ggufWriter) compareSpaces(read *Tokenizer) {
	texts := []string{" a"}
	for id, kind := range w.kinds {
		if k := ggufKind(kind); k == kindControl || k == kindUser {
			texts = append(texts, "a "+w.tokens[id]+" b"+w.tokens[id]+"c")
		}
	}
	for _, text := range texts {
		if !sameIDs(w.own, read, marked.Trusted(text), !w.isGemma4()) {
			w.warnings = append(w.warnings, fmt.Sprintf("spaces at the begin of a text, or spaces or letters beside an "+
				"added token, give other ids than with tokenizer.json, as in %q: the metadata cannot say how to treat them", text))
			return
		}
	}
}

// sameIDs reports whether two tokenizers encode a text alike, with the tokens around it or without.
func sameIDs(a, b *Tokenizer, text marked.Text, around bool) bool {
	first, err1 := a.EncodeMarked(text, around)
	second, err2 := b.EncodeMarked(text, around)
	return err1 == nil && err2 == nil && slices.Equal(first, second)
}

// probes are texts that pre-tokenizers and normalizers cut in different ways.
var probes = []string{"Hello, world! It's 2026, they'll say: \"WE'RE here\".", "two  spaces\tand\n\n  lines \r\n end  ",
	"x=1234567890; f(a_b)[0] += 3.14e-5 # ok?!", "café cafe\u0301 Ångström ﬁne ½", "数字123和文字。日本語のテキスト", "Привет мир",
	"السلام عليكم", "🙂👍🏽 emoji", "trailing ", "HTTPServer camelCase ABCdef", "a\u2581b"}
