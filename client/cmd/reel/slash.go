package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// commandHelp lists the commands of a chat.
const commandHelp = `    /help            print this list
    /new             begin another conversation, with the same system message
    /system TEXT     set the system message; without TEXT show it, with - drop it
    /regenerate      answer the last message once more
    /save FILE       write the conversation to a new file, as JSON
    /load FILE       read a conversation that /save wrote
    /set NAME VALUE  change a setting, such as temperature 0.5, until VALUE is
                     "default"; /set stop TEXT adds TEXT; /set template.NAME VALUE
                     sets a variable of the chat template. /set alone shows all
    /exit, /quit     end the chat

With --continue the conversation is written to its file after each answer, after /new
and /load too. A line that begins with a space is no command. A message of several lines begins and
ends with """.
`

// command is a command of a chat. rest is the text after its name.
type command struct {
	run  func(t *talk, ctx context.Context, rest string) error
	pipe bool // also a command if no person types
}

// commands returns the commands of a chat by name.
func commands() map[string]command {
	return map[string]command{
		"/help":       {run: (*talk).help},
		"/new":        {run: (*talk).restart, pipe: true},
		"/system":     {run: (*talk).setSystem},
		"/regenerate": {run: (*talk).regenerate},
		"/save":       {run: (*talk).save},
		"/load":       {run: (*talk).load},
		"/set":        {run: (*talk).set},
		"/exit":       {run: (*talk).leave, pipe: true},
		"/quit":       {run: (*talk).leave},
	}
}

// command returns the command in text. If it is unknown, its run returns an error.
func (t *talk) command(text string) (c command, rest string, is bool) {
	if !t.terminal {
		c, is = commands()[strings.TrimSpace(text)]
		return c, "", is && c.pipe
	}
	if !strings.HasPrefix(text, "/") {
		return c, "", false
	}
	name := text
	if end := strings.IndexFunc(text, unicode.IsSpace); end > 0 {
		name, rest = text[:end], strings.TrimSpace(text[end:])
	}
	c, is = commands()[name]
	switch {
	case is:
	case strings.Contains(text, "\n"): // a text of several lines, such as a paste
		return c, "", false
	default:
		c.run = unknownCommand(name)
	}
	return c, rest, true
}

func unknownCommand(name string) func(*talk, context.Context, string) error {
	return func(*talk, context.Context, string) error {
		return usagef("there is no command %s: a message that begins with / needs a space before it", oneLine(name))
	}
}

// none returns a usage error if rest is not empty.
func none(name, rest string) error {
	if rest == "" {
		return nil
	}
	return usagef("%s takes no words: a message that begins with / needs a space before it", name)
}

func (t *talk) help(_ context.Context, rest string) error {
	fmt.Fprint(stderr(), commandHelp)
	return none("/help", rest)
}

func (t *talk) restart(_ context.Context, rest string) error {
	if err := none("/new", rest); err != nil {
		return err
	}
	if m := t.messages; len(m) > 0 && m[0].Role == "system" {
		t.messages = m[:1:1] // as it is: one of a file is not special
		return nil
	}
	t.messages = t.opening(t.system)
	return nil
}

func (t *talk) leave(_ context.Context, rest string) error {
	if err := none("/exit", rest); err != nil {
		return err
	}
	return errEnd
}

// setSystem replaces the system message of this conversation and of further ones.
func (t *talk) setSystem(_ context.Context, text string) error {
	switch text {
	case "":
		fmt.Fprintf(stderr(), "system message: %s\n", indented(orNone(t.system)))
		return nil
	case "-":
		text = ""
	}
	t.replaceSystem(text)
	return nil
}

func (t *talk) replaceSystem(text string) {
	messages := t.messages
	if len(messages) > 0 && messages[0].Role == "system" {
		messages = messages[1:]
	}
	t.system, t.messages = text, append(t.opening(text), messages...)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// regenerate replaces the last answer. If the request fails, the old answer stays.
func (t *talk) regenerate(ctx context.Context, rest string) error {
	asked := t.messages
	if n := len(asked); n > 0 && asked[n-1].Role == "assistant" {
		asked = asked[:n-1]
	}
	if n := len(asked); rest != "" || n == 0 || asked[n-1].Role != "user" {
		return usagef("/regenerate answers the last message once more, and takes no words: there must be one")
	}
	return t.pursue(ctx, asked[:len(asked):len(asked)])
}

// settings are the names that /set knows, which are flags too.
var settings = []string{
	"max-tokens", "temperature", "top-k", "top-p", "min-p", "repeat-penalty", "presence-penalty",
	"frequency-penalty", "logit-bias", "seed", "stop", "special", "cache", "draft", "reasoning",
}

// set changes a setting or shows them.
func (t *talk) set(_ context.Context, rest string) error {
	name, value, _ := strings.Cut(rest, " ")
	if variable, is := strings.CutPrefix(name, "template."); is {
		return t.setVariable(variable, strings.TrimSpace(value))
	}
	name, value = strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-"), strings.TrimSpace(value)
	switch {
	case rest == "":
		for _, name := range settings {
			t.showSetting(name)
		}
		t.showVariables()
		return nil
	case !slices.Contains(settings, name):
		return usagef("there is no setting %s: the settings are %s, template.NAME", oneLine(name), strings.Join(settings, ", "))
	case value == "":
		t.showSetting(name)
		return nil
	}
	return t.change(t.flags.Lookup(name), value)
}

// showSetting prints a setting.
func (t *talk) showSetting(name string) {
	flag := t.flags.Lookup(name)
	value := flag.Value.String()
	if value == "" || value == "[]" {
		value = "default"
	}
	fmt.Fprintf(stderr(), "/set %s %s\n", name, oneLine(value))
}

// change sets flag. If the generator would refuse the value, nothing changes.
func (t *talk) change(flag *pflag.Flag, value string) error {
	before := t.request
	if value == "default" {
		reset(flag.Value)
		return nil
	}
	if err := flag.Value.Set(value); err != nil {
		return usagef("/set %s: %w", flag.Name, err)
	}
	if err := t.check(); err != nil {
		t.request = before
		return usagef("/set %s: %s", flag.Name, err.Message)
	}
	return nil
}

// check returns an error if the generator would refuse the settings.
func (t *talk) check() *client.Error {
	limits := t.client.Limits()
	r := t.limited(t.request, limits)
	m := protocol.Generate{
		Messages:  []client.Message{{Role: "user"}},
		MaxTokens: r.MaxTokens, Temperature: r.Temperature, TopK: r.TopK, TopP: r.TopP, MinP: r.MinP,
		RepeatPenalty: r.RepeatPenalty, Seed: r.Seed, Stop: r.Stop,
		PresencePenalty: r.PresencePenalty, FrequencyPenalty: r.FrequencyPenalty, LogitBias: r.LogitBias,
	}
	return m.Validate(limits)
}

// reset gives a flag its default again.
func reset(v pflag.Value) {
	switch v := v.(type) {
	case interface{ reset() }:
		v.reset()
	case pflag.SliceValue:
		_ = v.Replace(nil) // a list takes every text
	}
}
