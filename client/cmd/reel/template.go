package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// conversationFlags adds the flags for the form of a conversation.
func (a *app) conversationFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.system, "system", "", "begin the conversation with this `text` as the system's message")
	flags.Var((*variables)(&a.request.Template), "template",
		"set a variable of the model's chat template, such as enable_thinking=false; may be repeated")
}

// specialFlag adds the flag for text that is spelled like a control token.
func (a *app) specialFlag(flags *pflag.FlagSet, byDefault string) {
	flags.Var(optional("bool", &a.special, strconv.ParseBool), "special",
		"read spelled control tokens, such as <|im_end|>, as tokens; --special=false: as text (default: "+byDefault+")")
	flags.Lookup("special").NoOptDefVal = "true"
}

// message returns a message as --special asks for it.
func (a *app) message(role, text string) client.Message {
	return client.Message{Role: role, Content: text, Special: a.special != nil && *a.special}
}

// opening returns the first messages of a conversation: the system message, if any.
func (a *app) opening(system string) []client.Message {
	if system == "" {
		return nil
	}
	return []client.Message{a.message("system", system)}
}

// variables is the flag for a request's template variables.
type variables map[string]any

// Set adds a variable. With Type and String it implements pflag.Value.
func (v *variables) Set(text string) error {
	name, value, is := strings.Cut(text, "=")
	if !is {
		return errors.New("want NAME=VALUE, such as enable_thinking=false")
	}
	return v.put(name, value)
}

// Type returns the placeholder that help shows.
func (v *variables) Type() string { return "NAME=VALUE" }

// String is empty, because there are no variables by default.
func (v *variables) String() string { return "" }

// put sets a variable. If the generator would refuse it, nothing changes.
func (v *variables) put(name, text string) error {
	value, err := parseVariable(text)
	if err != nil {
		return err
	}
	changed := variables{}
	maps.Copy(changed, *v)
	changed[name] = value
	if e := protocol.Variables(changed).Validate(); e != nil {
		return e
	}
	*v = changed
	return nil
}

// parseVariable returns the value of text: that of JSON if it is JSON, otherwise the text.
func parseVariable(text string) (any, error) {
	switch text {
	case "True", "False", "None":
		return nil, fmt.Errorf("JSON has %s in place of Python's %s; a text of that spelling is '%q'",
			map[string]string{"True": "true", "False": "false", "None": "null"}[text], text, text)
	}
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		return text, nil
	}
	var value any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return withNumbers(value)
}

// withNumbers replaces each json.Number in a value: whole numbers stay whole.
func withNumbers(value any) (_ any, err error) {
	switch v := value.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64()
	case []any:
		for i := range v {
			if v[i], err = withNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = withNumbers(v[key]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// setVariable changes or shows a variable of the template.
func (t *talk) setVariable(name, text string) error {
	v := (*variables)(&t.request.Template)
	switch text {
	case "":
		t.showVariable(name)
		return nil
	case "default":
		*v = maps.Clone(*v)
		delete(*v, name)
		return nil
	}
	if err := v.put(name, text); err != nil {
		return usagef("/set template.%s: %w", oneLine(name), err)
	}
	return nil
}

// showVariables prints the variables of the template.
func (t *talk) showVariables() {
	for _, name := range slices.Sorted(maps.Keys(t.request.Template)) {
		t.showVariable(name)
	}
}

func (t *talk) showVariable(name string) {
	text := "default"
	if value, is := t.request.Template[name]; is {
		encoded, _ := json.Marshal(value) // put has taken only values that JSON has
		text = string(encoded)
	}
	fmt.Fprintf(stderr(), "/set template.%s %s\n", oneLine(name), oneLine(text))
}
