package assembly

import (
	"errors"
	"fmt"
	"io/fs"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/generator/internal/tokenizer"
	"reel.internal/reel/generator/internal/weights"
)

// draftModel is the draft model of --draft.
type draftModel struct {
	source
	files []weights.FileState // before the device read them
}

// openDraft opens the draft model or the EAGLE-3 head that the options name, and checks that it is one for the model.
// It returns nil if they name none. Errors are [config.ErrConfig].
func (l *Prepared) openDraft(target model.Config, limits []memlimit.Limit) (*draftModel, error) {
	if l.options.DraftModel() == "" || l.options.DraftTokens == 0 {
		return nil, nil
	}
	if target.Embedding != nil {
		return nil, config.Refuse(config.ErrConfig, "--draft %s: the model is for embeddings and draws no tokens: "+
			"leave --draft out", l.options.DraftModel())
	}
	place, files, err := draftFiles(l.options.DraftModel())
	if err != nil {
		return nil, err
	}
	l.options.SetDraftModel(place)
	if err = checkStart(files, limits); err != nil {
		return nil, config.Refuse(config.ErrConfig, "--draft: %w", err)
	}
	eagle, err := isEagle(files)
	if eagle {
		var s source
		if s, err = openEagle(files, target); err == nil {
			return &draftModel{source: s}, nil
		}
	}
	other := Prepared{options: config.Options{Model: place}}
	var s source
	if err == nil {
		s, err = other.open(files, limits)
	}
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--draft: %w", CannotServe(Place(place), err))
	}
	vocab := target.Vocab
	if s.config.Embedding != nil {
		err = fmt.Errorf("--draft %s: it is a model for embeddings, which draws no tokens: give another", place)
		return nil, config.Refuse(config.ErrConfig, "%w", errors.Join(err, s.tensors.Close()))
	}
	if err = sameTokens(l.tokenizer, other.tokenizer, vocab, s.config.Vocab); err != nil {
		err = fmt.Errorf("--draft %s: %w: give a smaller model of the same family, or --draft lookup", place, err)
		return nil, config.Refuse(config.ErrConfig, "%w", errors.Join(err, s.tensors.Close()))
	}
	return &draftModel{source: s}, nil
}

// draftFiles returns the files of the draft model in a place, and that place; a name as of --model is located.
func draftFiles(place string) (located string, files fs.FS, err error) {
	o, _, err := Locate(config.Options{Model: place})
	if err == nil {
		files, _, err = ModelFiles(o)
	}
	if err != nil {
		return "", nil, config.Refuse(config.ErrConfig, "--draft: %w", err)
	}
	return o.Model, files, nil
}

// mostApart is the largest difference of the numbers of tokens of two tokenizers that are taken for one: added tokens,
// and ids without a token.
const mostApart = 1024

// sameTokens returns an error unless both models have the same token for each id.
func sameTokens(own, draft server.Tokenizer, vocab, draftVocab int) error {
	a, known := own.(*tokenizer.Tokenizer)
	b, other := draft.(*tokenizer.Tokenizer)
	switch {
	case known != other:
		return errors.New("one of the two models has a tokenizer and the other has none")
	case !known && vocab != draftVocab:
		return fmt.Errorf("the draft model has %d tokens, the model %d", draftVocab, vocab)
	case !known:
		return nil
	case max(a.Vocab(), b.Vocab())-min(a.Vocab(), b.Vocab()) > mostApart:
		return fmt.Errorf("the draft model has another vocabulary: %d tokens, the model %d", b.Vocab(), a.Vocab())
	}
	if id, differs := a.Differs(b); differs {
		return fmt.Errorf("the draft model has another vocabulary: its token %d is %.40q, the model's %.40q", id,
			b.TokenText(id), a.TokenText(id))
	}
	return nil
}

// planned returns what a plan needs to know of the draft model; nil for none.
func (d *draftModel) planned() *plan.Draft {
	if d == nil {
		return nil
	}
	use := d.use()
	return &plan.Draft{Config: d.config, Formats: use.Formats, Ordered: use.Ordered}
}

// addTo adds the host memory of the draft model's weights to use.
func (d *draftModel) addTo(use *plan.WeightUse) {
	if d == nil {
		return
	}
	own := d.use()
	use.Draft = d.planned()
	use.Resident, use.Copied = use.Resident+own.Resident, use.Copied+own.Copied
}

// close closes the files.
func (d *draftModel) close() error {
	if d == nil {
		return nil
	}
	return d.tensors.Close()
}

// loadDraft loads the draft model's weights. Its RoPE reaches as far as the model's sequences do.
func (l *Prepared) loadDraft(progress func(float64)) (err error) {
	d := l.draft
	if d == nil {
		return nil
	}
	place := Place(l.options.DraftModel())
	if d.files, err = d.tensors.State(); err != nil {
		return config.Refuse(config.ErrConfig, "--draft: %w", errors.Join(CannotServe(place, err), d.close()))
	}
	c := d.config
	c.Context = l.EngineOptions.Context
	if l.EngineOptions.DraftModel, err = d.load(l.Hardware, c, !l.Hardware.Packed, progress); err != nil {
		return config.Refuse(config.ErrConfig, "--draft: %w", CannotServe(place, err))
	}
	return nil
}

// DraftHeaders adds the draft model that o names, if any, to the use of the weights of a model. It reads headers alone.
func DraftHeaders(o config.Options, target model.Config, use *plan.WeightUse) error {
	if o.DraftModel() == "" || o.DraftTokens == 0 {
		return nil
	}
	_, files, err := draftFiles(o.DraftModel())
	if err != nil {
		return err
	}
	var c model.Config
	var own plan.WeightUse
	eagle, err := isEagle(files)
	switch {
	case err == nil && eagle:
		c, own, err = eagleHeaders(files, target)
	case err == nil:
		c, own, err = Headers(files)
	}
	if err != nil {
		return config.Refuse(config.ErrConfig, "--draft: %w", CannotServe(Place(o.DraftModel()), err))
	}
	use.Draft = &plan.Draft{Config: c, Formats: own.Formats, Ordered: own.Ordered}
	use.Resident, use.Copied, use.Unmapped = use.Resident+own.Resident, use.Copied+own.Copied, use.Unmapped+own.Unmapped
	return nil
}

// draftIdentity is what stored pages depend on with a draft model: a page has its keys and values too.
type draftIdentity struct {
	Config  model.Config // with Context 0
	Files   []weights.FileState
	Weights [32]byte // of all bytes of Files
}
