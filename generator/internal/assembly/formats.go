package assembly

import (
	"context"
	"fmt"
	"os"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/format"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

// startFormats lets the model follow formats. The program that does so starts with the first of them; warn gets a line
// for the log whenever it ends.
func (l *Loaded) startFormats(t server.Tokenizer, c model.Config, warn func(line string)) error {
	tokens, ok := t.(interface {
		TokenBytes(id int32) (string, bool)
	})
	if !ok {
		ids, _ := t.(idsOnly)
		l.Model.Formats = noText{ids}
		return nil
	}
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	v := format.Vocabulary{Tokens: c.Vocab, Bytes: tokens.TokenBytes, EOS: c.EOS}
	s, err := format.New(format.Beside(path), v, warn)
	if err != nil {
		return fmt.Errorf("formats: %w", err)
	}
	l.Model.Formats, l.Model.FormatState, l.endFormats = s, s.State, s.Close
	return nil
}

// noText refuses formats of a model without a tokenizer.
type noText struct{ ids idsOnly }

// Compile refuses the format.
func (t noText) Compile(ctx context.Context, user engine.User, _ protocol.Format) (engine.Format, error) {
	return t.CompileCalls(ctx, user, "", nil)
}

// CompileAfter refuses the format.
func (t noText) CompileAfter(ctx context.Context, user engine.User, _ protocol.Format, _ string,
	_ []int32) (engine.Format, error) {
	return t.CompileCalls(ctx, user, "", nil)
}

// CompileCalls refuses the calls.
func (t noText) CompileCalls(context.Context, engine.User, string, []int32) (engine.Format, error) {
	return nil, protocol.Errorf(protocol.CodeFormatUnavailable, t.ids.download(),
		"a format is of text, and this model has no tokenizer")
}
