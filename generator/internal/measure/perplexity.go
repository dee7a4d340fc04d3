package measure

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Windows cuts a text into windows of Size tokens, a token such as BOS at their begin included, each Stride further
// than the one before. Each token is scored once, in the first window that holds it: after at least Size-Stride tokens,
// or all there are.
type Windows struct {
	Size   int // 0: the context, at most 1,024
	Stride int // 0: a quarter of Size
}

// defaultWindow bounds the size of windows by default.
const defaultWindow = 1024

// Perplexity is the JSON that the command perplexity prints: how well a model predicts texts.
type Perplexity struct {
	Model      string  `json:"model"`
	Device     string  `json:"device"`
	Version    string  `json:"version"`
	Bytes      int64   `json:"weight_bytes"`
	Window     int     `json:"window"`
	Stride     int     `json:"stride"`
	Tokens     int     `json:"tokens"`             // scored
	Characters int     `json:"characters"`         // of the texts
	Nats       float64 `json:"nats"`               // sum of -ln p of the tokens
	PerToken   float64 `json:"nats_per_token"`     // Nats / Tokens
	PerChar    float64 `json:"nats_per_character"` // Nats / Characters
	Perplexity float64 `json:"perplexity"`         // exp(PerToken)
}

// Write prints the result, as JSON or as text.
func (p *Perplexity) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(p)
	}
	_, err := fmt.Fprintf(w, "%s on %s: perplexity %.4f, %.4f nats per token, %.4f per character\n"+
		"%d tokens, %d characters, windows of %d tokens, stride %d\n", p.Model, p.Device, p.Perplexity, p.PerToken,
		p.PerChar, p.Tokens, p.Characters, p.Window, p.Stride)
	return err
}

// RunPerplexity loads the model and scores each text by itself. version is the program's, for the report. Errors are
// [config.ErrConfig] for windows that do not fit, and for texts without a token to score.
func RunPerplexity(o config.Options, w Windows, texts []string, version string) (*Perplexity, error) {
	l, err := assembly.Prepare(o, func(float64, string) {})
	if err != nil {
		return nil, err
	}
	if l.Model.Config.Embedding != nil {
		return nil, config.Refuse(config.ErrConfig, "%s is meant for embeddings and predicts no text: score a model "+
			"that draws tokens", l.Name)
	}
	p := &Perplexity{Model: l.Name, Device: l.Hardware.Name(), Version: version, Bytes: l.Model.WeightBytes()}
	if err := p.score(&l, w, texts); err != nil {
		return nil, err
	}
	switch {
	case p.Tokens == 0:
		return nil, config.Refuse(config.ErrConfig, "the files have no token to score")
	case math.IsNaN(p.Nats) || math.IsInf(p.Nats, 0):
		return nil, config.Refuse(config.ErrConfig, "the model computes logits that are no numbers: download its files "+
			"again, or use another checkpoint")
	}
	p.PerToken, p.PerChar = p.Nats/float64(p.Tokens), p.Nats/float64(p.Characters)
	p.Perplexity = math.Exp(p.PerToken)
	return p, nil
}

// score adds the scores of the texts.
func (p *Perplexity) score(l *assembly.Prepared, w Windows, texts []string) error {
	begin, err := l.Encode("", true)
	if err != nil {
		return err
	}
	if w, err = w.within(l.EngineOptions.Context, len(begin)); err != nil {
		return err
	}
	p.Window, p.Stride = w.Size, w.Stride
	s, err := newScorer(l, w.Size)
	if err != nil {
		return err
	}
	for _, text := range texts {
		ids, err := l.Encode(text, false)
		if err != nil {
			return errors.Join(err, s.close())
		}
		nats, n, err := s.text(w, begin, ids)
		if err != nil {
			return errors.Join(err, s.close())
		}
		p.Nats, p.Tokens, p.Characters = p.Nats+nats, p.Tokens+n, p.Characters+utf8.RuneCountInString(text)
	}
	return s.close()
}

// within completes the windows for a context, where begin tokens are put in front of each.
func (w Windows) within(context, begin int) (Windows, error) {
	if w.Size == 0 {
		w.Size = min(context, defaultWindow)
	}
	if w.Stride == 0 {
		w.Stride = max(1, w.Size/4)
	}
	if begin = max(1, begin); w.Size > context || w.Stride < 1 || w.Stride > w.Size-begin {
		return w, config.Refuse(config.ErrConfig, "--window %d --stride %d: a window has %d to %d tokens, and a stride "+
			"leaves at least %d of them", w.Size, w.Stride, begin+1, context, begin)
	}
	return w, nil
}

// scorer runs prefill passes of one sequence, and reads the logits of their rows.
type scorer struct {
	*rig
	vocab, chunk int // chunk: rows of a pass, each sampled
	logits       []byte
}

// maxLogits bounds the logits of one pass, in bytes.
const maxLogits = 32 << 20

// newScorer allocates the memory of passes over a sequence of that many tokens.
func newScorer(l *assembly.Prepared, context int) (*scorer, error) {
	e, vocab := l.EngineOptions, l.Model.Config.Vocab
	s := &scorer{rig: &rig{dev: l.Hardware.Device, model: l.Model}, vocab: vocab,
		chunk: max(1, min(e.Chunk, maxLogits/(4*vocab)))}
	var err error
	if s.stream, err = s.dev.NewStream(); err != nil {
		return nil, err
	}
	g := model.Geometry{MaxRows: s.chunk, Slots: 1, MaxSamples: s.chunk, Context: context, PageTokens: e.PageTokens,
		Pages: (context + e.PageTokens - 1) / e.PageTokens, RingSlots: ringSlots, KVType: e.KVType}
	if s.memory, err = l.Model.NewStepMemory(s.dev, g); err != nil {
		return nil, errors.Join(err, s.stream.Destroy())
	}
	s.logits = make([]byte, s.memory.Logits().Bytes())
	for _, pages := range (pass{phase: "prefill", rows: 1, context: context}).pages(s.memory) {
		if err := s.write(kernels.Step{Pages: pages}); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// text returns the sum of -ln p of a text's tokens, and their number. Without tokens that begin a window the first
// token of the text is not scored.
func (s *scorer) text(w Windows, begin, ids []int32) (nats float64, n int, err error) {
	done := 0 // tokens of ids that have been scored
	for at := 0; done < len(ids); at += w.Stride {
		end := min(at+w.Size-len(begin), len(ids))
		window := slices.Concat(begin, ids[at:end])
		scores, err := s.window(window, len(begin)+done-at)
		if err != nil {
			return 0, 0, err
		}
		for _, score := range scores {
			nats += score
		}
		n, done = n+len(scores), end
	}
	return nats, n, nil
}

// window returns -ln p of the tokens of a window from the one at index first on, other than of token 0.
func (s *scorer) window(tokens []int32, first int) (scores []float64, err error) {
	rows := len(tokens) - 1 // the last token is only predicted
	for at := 0; at < rows; at += s.chunk {
		step := kernels.Step{}
		for i := at; i < min(at+s.chunk, rows); i++ {
			if i+1 >= first {
				step.Samples = append(step.Samples, int32(i-at))
			}
			step.Rows = append(step.Rows, kernels.Row{Position: int32(i), Token: tokens[i]})
		}
		if err := s.pass(step); err != nil {
			return nil, err
		}
		for i, row := range step.Samples {
			logits := s.logits[4*s.vocab*i:][:4*s.vocab]
			scores = append(scores, surprise(logits, int(tokens[at+int(row)+1])))
		}
	}
	return scores, nil
}

// pass runs a prefill pass without its sampling, and reads the logits of its samples.
func (s *scorer) pass(step kernels.Step) error {
	step.Number = s.staged
	if err := s.memory.Write(&step); err != nil {
		return err
	}
	var pass recorder
	shape := model.Shape{Class: kernels.Prefill, Rows: len(step.Rows), Samples: len(step.Samples)}
	if err := s.model.Forward(&pass, s.memory, shape); err != nil {
		return err
	}
	pass.ops = slices.DeleteFunc(pass.ops, func(op device.Op) bool { _, ok := op.(kernels.Sample); return ok })
	if err := s.run(pass.ops); err != nil || len(step.Samples) == 0 {
		return err
	}
	n := 4 * s.vocab * len(step.Samples)
	return s.dev.Read(s.logits[:n], s.memory.Logits().Slice(0, int64(n)))
}

// surprise returns -ln p of a token after float32 logits.
func surprise(logits []byte, token int) float64 {
	at := func(i int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(logits[4*i:])))
	}
	most, sum := math.Inf(-1), 0.0
	for i := range len(logits) / 4 {
		most = max(most, at(i))
	}
	for i := range len(logits) / 4 {
		sum += math.Exp(at(i) - most)
	}
	return most + math.Log(sum) - at(token)
}
