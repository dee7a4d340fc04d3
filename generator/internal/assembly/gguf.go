package assembly

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/generator/internal/tokenizer"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/protocol"
)

// ggufFile is the file system of a model in one GGUF file. It shows that file and, if it is the
// first of several parts, the others, but nothing else of its directory: a tokenizer.json beside the
// file may belong to another model.
type ggufFile struct {
	dir  files.Dir
	name string
}

// partOf matches the end of the name of a part.
var partOf = regexp.MustCompile(`-\d{5}-of-\d{5}\.gguf$`)

// GGUF returns the name of the file.
func (f ggufFile) GGUF() string { return f.name }

// Open opens the file or another part of it.
func (f ggufFile) Open(name string) (fs.File, error) {
	own := partOf.ReplaceAllString(f.name, "")
	if name != f.name && (own == f.name || partOf.ReplaceAllString(name, "") != own) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.dir.Open(name)
}

// openGGUF reads a GGUF file's metadata and headers, and checks that they belong together.
func (l *Prepared) openGGUF(files weights.GGUF, limits []memlimit.Limit) (source, error) {
	s, err := openSource(files)
	if err != nil {
		return s, err
	}
	if err = checkRoom(startRoom+metadataFactor*s.tensors.Metadata().Bytes(), limits); err == nil {
		err = l.readGGUFTokenizer(&s, files.GGUF())
	}
	if err != nil {
		return s, errors.Join(err, s.tensors.Close())
	}
	l.chatDefaults = protocol.DefaultSampling()
	s.tensors.DropMetadata()
	s.metadata = nil
	return s, nil
}

// readGGUFTokenizer makes the tokenizer from the file's metadata, and takes its chat template and its end tokens. A
// model without a tokenizer takes prompts as token ids. name is that of the file.
func (l *Prepared) readGGUFTokenizer(s *source, name string) error {
	m := s.metadata
	if !m.Has("tokenizer.ggml.model") {
		l.tokenizer, l.decoder = idsOnly{gguf: true}, func([]int32) server.Decoder { return idsOnly{} }
		l.warnings = append(l.warnings, noGGUFTokenizer)
		return nil
	}
	t, settings, err := tokenizer.FromGGUF(m)
	if err != nil {
		return err
	}
	if n := t.ModelVocab(); n > s.config.Vocab {
		return fmt.Errorf("the file's tokenizer has %d tokens, and its embedding %d rows: download the file again",
			n, s.config.Vocab)
	}
	l.tokenizer, l.decoder = t, func(after []int32) server.Decoder { return t.NewDecoder(after) }
	l.chat = chat.Source{Template: settings.ChatTemplate, Tools: settings.ToolsTemplate, Tokens: settings.Tokens}
	ends := slices.DeleteFunc(settings.EndTokens, func(id int32) bool { return int(id) >= s.config.Vocab })
	if len(ends) > 0 {
		s.config.EOS = ends
	}
	if settings.ChatTemplate == "" && ollamaBlob.MatchString(name) {
		l.warnings = append(l.warnings, noOllamaTemplate)
	}
	return nil
}

// ollamaBlob matches the name of a file in Ollama's store.
var ollamaBlob = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)

// noOllamaTemplate is the warning at the start of a file of Ollama's whose template is a layer of its own.
const noOllamaTemplate = "the file has no chat template, and the one that Ollama keeps beside it is in a language of its " +
	"own: prompts are served and conversations refused; give the chat_template.jinja of the model's repository on " +
	"Hugging Face with --chat-template FILE"

// isGGUF reports whether a regular file begins as GGUF does.
func isGGUF(path string) bool { return beginsWith(path, "GGUF") }
