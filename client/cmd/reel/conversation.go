package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/regular"
	"reel.internal/reel/protocol"
)

// saved is a conversation in a file. It has only the fields that a file may set, since
// the file may come from elsewhere.
type saved struct {
	Model    string         `json:"model,omitempty"` // that answered; for people
	Messages []savedMessage `json:"messages"`
}

type savedMessage struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning,omitempty"`
}

// maxSaved bounds the bytes of a file for /load. JSON takes up to 6 bytes for one of a
// message, and all messages fit a frame.
const maxSaved = 6*protocol.MaxFrame + 1<<20

// save writes the conversation to a new file.
func (t *talk) save(_ context.Context, path string) error {
	switch {
	case path == "":
		return usagef("/save needs the name of a file")
	case len(t.messages) == 0:
		return usagef("there is nothing to save: the conversation is empty")
	}
	text, err := encodeSaved(t.client.Model(), t.messages)
	if err != nil {
		return usagef("/save: %w", err)
	}
	if err := writeNew(atHome(path), text); err != nil {
		return usagef("/save: %w", err)
	}
	fmt.Fprintf(stderr(), "saved %d messages\n", len(t.messages))
	return nil
}

// encodeSaved returns the text of a conversation's file.
func encodeSaved(model string, messages []client.Message) ([]byte, error) {
	s := saved{Model: model}
	for _, m := range messages {
		s.Messages = append(s.Messages, savedMessage{m.Role, m.Content, m.Reasoning})
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(s)
	return text.Bytes(), err
}

// errExists means that /save would overwrite a file.
var errExists = errors.New("the file exists and is left as it is: name another")

// writeNew writes a file that does not exist yet, readable by this user alone.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s: %w", path, errExists)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// atHome replaces ~/ at the beginning of path, as a shell does.
func atHome(path string) string {
	rest, is := strings.CutPrefix(path, "~/")
	home, err := os.UserHomeDir()
	if !is || err != nil {
		return path
	}
	return filepath.Join(home, rest)
}

// load replaces the conversation by one in a file. If the file is not one, nothing changes.
func (t *talk) load(_ context.Context, path string) error {
	if path == "" {
		return usagef("/load needs the name of a file")
	}
	text, err := readSaved(atHome(path))
	if err != nil {
		return usagef("/load: %w", err)
	}
	messages, err := parseSaved(text, t.client.Limits())
	if err != nil {
		return usagef("/load: %s: %w", path, err)
	}
	t.adopt(messages)
	fmt.Fprintf(stderr(), "loaded %d messages\n", len(messages))
	return nil
}

// adopt replaces the conversation, and takes the system message of further ones from it.
func (t *talk) adopt(messages []client.Message) {
	t.messages, t.system = messages, ""
	if messages[0].Role == "system" {
		t.system = messages[0].Content
	}
}

// readSaved reads a regular file of at most maxSaved bytes.
func readSaved(path string) ([]byte, error) {
	file, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSaved+1))
	if err == nil && len(text) > maxSaved {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxSaved)
	}
	return text, err
}

// parseSaved returns the messages of a file that /save wrote, if the generator takes them.
func parseSaved(text []byte, l client.Limits) ([]client.Message, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is not valid UTF-8")
	}
	var s saved
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("it is no conversation that /save wrote: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the conversation")
	}
	messages := []client.Message{}
	for _, m := range s.Messages {
		messages = append(messages, client.Message{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning})
	}
	m := protocol.Generate{Messages: messages}
	if err := m.Validate(l); err != nil {
		return nil, errors.New(err.Message)
	}
	return messages, nil
}
