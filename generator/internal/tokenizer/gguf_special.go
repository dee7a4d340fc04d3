package tokenizer

import (
	"fmt"
	"slices"
)

// ggufSpecials are the keys of special tokens, and the names of these tokens in chat templates. The
// defaults are those of model llama.
var ggufSpecials = []struct {
	key, name string
	id        int // of model llama if the key is absent; -1: none
	ends      bool
}{
	{"bos_token_id", "bos_token", 1, false},
	{"eos_token_id", "eos_token", 2, true},
	{"eot_token_id", "eot_token", -1, true},
	{"eom_token_id", "eom_token", -1, true},
	{"unknown_token_id", "unk_token", 0, false},
	{"padding_token_id", "pad_token", -1, false},
	{"seperator_token_id", "sep_token", -1, false}, //nolint:misspell // the format's spelling
	{"mask_token_id", "mask_token", -1, false},
	{"fim_pad_token_id", "", -1, true},
	{"fim_rep_token_id", "", -1, true},
	{"fim_sep_token_id", "", -1, true},
}

// ggufEnds are the texts of tokens that end an answer, though a file may not name their ids: those of
// llama.cpp (its special_eog_ids). Such a token is a control token, whatever its type.
var ggufEnds = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>", "</s>",
	"<end_of_turn>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
	"<eos>", "<｜end▁of▁sentence｜>", "<turn|>", toolResponse,
	"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>", "<|file_sep|>"}

// toolResponse ends an answer of Gemma 4 after calls of tools.
const toolResponse = "<|tool_response>"

// gemma4Visible are the special tokens of Gemma 4 that converters write as added and not special, so that llama.cpp
// prints them. They are special in tokenizer.json: no text that is data may have them.
var gemma4Visible = []string{"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", toolResponse,
	"<tool_response|>", `<|"|>`}

// readEnds reads the list of end tokens that Ollama's converters write, from generation_config.json.
func (v *ggufVocab) readEnds() error {
	list, _ := v.m.Ints(keys + "eos_token_ids")
	for _, id := range list {
		if id < 0 || id >= int64(len(v.tokens)) {
			return fmt.Errorf("%w: %seos_token_ids: no token has the id %d", ErrInvalid, keys, id)
		}
		if v.kinds[id] != kindUnused {
			v.ends[int32(id)] = true
		}
	}
	return nil
}

// readSpecials reads the ids of special tokens and finds the end tokens.
func (v *ggufVocab) readSpecials() error {
	for _, s := range ggufSpecials {
		id := -1
		if v.scored && s.id >= 0 && s.id < len(v.tokens) {
			id = s.id
		}
		if n, ok := v.m.Uint(keys + s.key); ok {
			if n >= uint64(len(v.tokens)) || v.kinds[n] == kindUnused && v.tokens[n] == "" {
				return fmt.Errorf("%w: %s%s: no token has the id %d", ErrInvalid, keys, s.key, n)
			}
			id = int(n)
		}
		if id < 0 {
			continue
		}
		if s.name != "" {
			v.special[s.name] = int32(id)
		}
		if s.ends {
			v.ends[int32(id)] = true
		}
	}
	for id, content := range v.tokens {
		if v.kinds[id] != kindUnused && slices.Contains(ggufEnds, content) {
			v.ends[int32(id)] = true
		}
	}
	if err := v.readEnds(); err != nil {
		return err
	}
	v.dropTag()
	v.markControls()
	v.dropMessageEnd()
	return nil
}

// dropTag takes </s> from the end tokens where toolResponse is: there it is a tag of HTML. (llama.cpp does the same.)
func (v *ggufVocab) dropTag() {
	tag, responds := int32(-1), false
	for id := range v.ends {
		if v.tokens[id] == "</s>" {
			tag = id
		}
		responds = responds || v.tokens[id] == toolResponse
	}
	if eos, ok := v.special["eos_token"]; responds && !(ok && eos == tag) {
		delete(v.ends, tag)
	}
}

// dropMessageEnd takes <|end|> from the end tokens where <|return|> and <|call|> are: there, as in gpt-oss's files, it
// ends a message, such as what the model thinks, and others follow. (llama.cpp does the same.)
func (v *ggufVocab) dropMessageEnd() {
	ids := map[string]int32{}
	for id := range v.ends {
		ids[v.tokens[id]] = id
	}
	end, ok := ids["<|end|>"]
	_, returns := ids["<|return|>"]
	if _, calls := ids["<|call|>"]; ok && returns && calls {
		delete(v.ends, end)
	}
}

// markControls makes control tokens of those that begin or end a text, and of [gemma4Visible].
func (v *ggufVocab) markControls() {
	for id, content := range v.tokens {
		if v.merged && v.kinds[id] == kindUser && slices.Contains(gemma4Visible, content) {
			v.kinds[id] = kindControl
		}
	}
	for id := range v.ends {
		v.kinds[id] = kindControl
	}
	if bos, ok := v.special["bos_token"]; ok {
		v.kinds[bos] = kindControl
	}
}

// around returns the tokens that begin and end a text: those of add_bos_token and add_eos_token.
func (v *ggufVocab) around() (template, error) {
	var t template
	for _, s := range []struct {
		key, name string
		add       bool
		ids       *[]int32
	}{
		{"add_bos_token", "bos_token", v.pipeline.bos, &t.prefix},
		{"add_eos_token", "eos_token", false, &t.suffix},
	} {
		if add, ok := v.m.Bool(keys + s.key); ok && !(v.merged && s.name == "bos_token") { // early files have it false
			s.add = add
		}
		if !s.add {
			continue
		}
		id, ok := v.special[s.name]
		if !ok {
			return t, fmt.Errorf("%w: %s%s without %s%s_id", ErrInvalid, keys, s.key, keys, s.name)
		}
		*s.ids = append(*s.ids, id)
	}
	return t, nil
}
