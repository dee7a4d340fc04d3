package tokenizer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

const (
	// maxMerges bounds the merges of a GGUF file; Gemma's tokenizer.json has 580,000.
	maxMerges = 1 << 20
	// maxSplits bounds the work of deriving merges: for each token, its bytes times its characters.
	// Published vocabularies need 10 million.
	maxSplits = 1 << 30
)

func checkMergeCount(n int) error {
	if n > maxMerges {
		return fmt.Errorf("%w: more than %d merges", ErrInvalid, maxMerges)
	}
	return nil
}

// scoredMerge is a merge and its place in the order.
type scoredMerge struct {
	pair            mergePair
	score           float64
	id, left, right int32
}

// scoredMerges derives the merges of model llama from the scores of tokens, as transformers does for
// the tokenizer.json of Llama 2 (convert_slow_tokenizer.py): each cut of a token into two others is a
// merge. Higher scores go first; of equal scores, lower ids of the token, then of its left and of its
// right part. Some converters write one score for all tokens. Such files have no order of merges: that
// of ids puts Llama 2's runs of spaces first, and they go last. So they are refused.
func (v *ggufVocab) scoredMerges(vocab map[string]int32) ([]mergePair, error) {
	scores, err := v.scores()
	if err != nil {
		return nil, err
	}
	var list []scoredMerge
	work := 0
	for content, id := range vocab {
		if v.kinds[id] != kindNormal {
			continue
		}
		if work += len(content) * len(content); work > maxSplits {
			return nil, fmt.Errorf("%w: %stokens are too long", ErrInvalid, keys)
		}
		for i := range content {
			left, ok := vocab[content[:i]]
			if !ok {
				continue
			}
			if right, ok := vocab[content[i:]]; ok {
				list = append(list, scoredMerge{mergePair{content[:i], content[i:]}, scores[id], id, left, right})
			}
		}
		if err := checkMergeCount(len(list)); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b scoredMerge) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id), cmp.Compare(a.left, b.left),
			cmp.Compare(a.right, b.right))
	})
	if last := len(list) - 1; last > 0 && list[0].score == list[last].score && list[0].id != list[last].id {
		return nil, fmt.Errorf("%w: %sscores are all %v, so merges have no order: convert the model from "+
			"tokenizer.model", ErrUnsupported, keys, list[0].score)
	}
	merges := make([]mergePair, len(list))
	for i, m := range list {
		merges[i] = m.pair
	}
	return merges, nil
}

// scores reads the scores, one for each token. Old files have whole numbers.
func (v *ggufVocab) scores() ([]float64, error) {
	scores, found := v.m.Floats(keys + "scores")
	whole, _ := v.m.Ints(keys + "scores")
	if n := max(len(scores), len(whole)); n != len(v.tokens) {
		return nil, fmt.Errorf("%w: %sscores has %d entries for %d tokens", ErrInvalid, keys, n, len(v.tokens))
	}
	if !found {
		scores = make([]float64, len(whole))
		for i, n := range whole {
			scores[i] = float64(n)
		}
	}
	if id := slices.IndexFunc(scores, math.IsNaN); id >= 0 {
		return nil, fmt.Errorf("%w: %sscores: token %d has the score NaN", ErrInvalid, keys, id)
	}
	return scores, nil
}
