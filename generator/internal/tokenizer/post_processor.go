package tokenizer

import (
	"encoding/json"
	"fmt"
)

// template holds the ids that the post-processor puts before and after those of a text.
type template struct{ prefix, suffix []int32 }

// templateConfig is TemplateProcessing. Its pair is for encoding two texts together, which
// this package does not do.
type templateConfig struct {
	Type          string          `json:"type"`
	Single        []templatePiece `json:"single"`
	Pair          json.RawMessage `json:"pair"`
	SpecialTokens map[string]struct {
		ID     string   `json:"id"`
		IDs    []int32  `json:"ids"`
		Tokens []string `json:"tokens"`
	} `json:"special_tokens"`
}

// templatePiece is either the text or a special token. Only models that take pairs use type
// ids.
type templatePiece struct {
	Sequence     *templateRef
	SpecialToken *templateRef
}

type templateRef struct {
	ID     string `json:"id"`
	TypeID int    `json:"type_id"`
}

// newTemplate accepts ByteLevel, which adds nothing, TemplateProcessing, or a Sequence of these
// with at most one TemplateProcessing; tokenizers panics on two.
func newTemplate(raw json.RawMessage, t *Tokenizer) (template, error) {
	list, err := members(raw, "processors")
	if err != nil {
		return template{}, err
	}
	var found *template
	for _, m := range list {
		p, err := newProcessor(m, t)
		if err != nil {
			return template{}, err
		}
		if p != nil && found != nil {
			return template{}, fmt.Errorf("%w: more than one TemplateProcessing", ErrUnsupported)
		}
		if p != nil {
			found = p
		}
	}
	if found == nil {
		return template{}, nil
	}
	return *found, nil
}

// newProcessor returns the template of a processor, or nil if it adds nothing.
func newProcessor(raw json.RawMessage, t *Tokenizer) (*template, error) {
	kind, err := typeOf(raw)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel":
		return nil, decode(raw, new(byteLevelConfig))
	case "TemplateProcessing":
		var c templateConfig
		if err := decode(raw, &c); err != nil {
			return nil, err
		}
		return c.template(t)
	}
	return nil, unsupported(kind)
}

// template returns the special tokens before and after the one Sequence in c.Single.
func (c *templateConfig) template(t *Tokenizer) (*template, error) {
	p := new(template)
	into, sequences := &p.prefix, 0
	for _, piece := range c.Single {
		switch {
		case piece.Sequence != nil && piece.SpecialToken == nil && piece.Sequence.ID == "A":
			into = &p.suffix
			sequences++
		case piece.SpecialToken != nil && piece.Sequence == nil:
			s, ok := c.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("%w: special_tokens lacks %.40q", ErrInvalid, piece.SpecialToken.ID)
			}
			for _, id := range s.IDs {
				if id < 0 || int(id) >= len(t.tokens) || !t.tokens[id].used {
					return nil, fmt.Errorf("%w: special token %.40q: no token has the id %d",
						ErrInvalid, piece.SpecialToken.ID, id)
				}
			}
			*into = append(*into, s.IDs...)
		default:
			return nil, fmt.Errorf("%w: a piece of single is neither Sequence A nor a SpecialToken", ErrInvalid)
		}
	}
	if sequences != 1 {
		return nil, fmt.Errorf("%w: single has %d Sequences, want 1", ErrUnsupported, sequences)
	}
	return p, nil
}
