package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/regular"
	"reel.internal/reel/protocol"
)

// form is what the flags for a completion's form have.
type form struct {
	schema, regex, tools string // schema and tools are files
	choices              []string
}

// formFlags adds the flags for the form of a completion, and for tools.
func (a *app) formFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.form.schema, "json-schema", "", "answer with JSON that the JSON Schema in `FILE` accepts")
	flags.StringVar(&a.form.regex, "regex", "", "answer with a text that this regular `expression` matches as a whole")
	flags.StringSliceVar(&a.form.choices, "choice", nil,
		"answer with one of these `texts`, such as yes,no; may be repeated")
	flags.StringVar(&a.form.tools, "tools", "",
		"tools that the model may call: a JSON list in `FILE`, as OpenAI's API has "+
			"it; calls are printed as lines of JSON after the text")
}

// readForm sets the request's format and tools.
func (a *app) readForm() error {
	f := client.Format{Regex: a.form.regex, Choice: a.form.choices}
	given := 0
	for _, is := range []bool{a.form.schema != "", f.Regex != "", len(f.Choice) > 0} {
		if is {
			given++
		}
	}
	if given > 1 {
		return usagef("--json-schema, --regex and --choice exclude each other")
	}
	if a.form.tools != "" && (a.raw || a.request.Tokens != nil) {
		return usagef("--tools needs the model's chat template: leave out --raw and --tokens")
	}
	var err error
	if f.JSONSchema, err = readJSON(a.form.schema); err != nil {
		return err
	}
	if given > 0 {
		a.request.Format = &f
	}
	a.request.Tools, err = readJSON(a.form.tools)
	return err
}

// checkEmpty refuses flags that were given without a value, as by a variable of a script that is
// not set: without them the completion would have no form, or another prompt.
func checkEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		empty := f.Value.String() == ""
		if list, is := f.Value.(pflag.SliceValue); is {
			empty = len(list.GetSlice()) == 0
		}
		if empty {
			return usagef("--%s is empty: give it a value or leave it out", name)
		}
	}
	return nil
}

// readJSON reads a file with a JSON text. Without a path it returns "".
func readJSON(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return "", usagef("%w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, protocol.MaxJSONBytes+1))
	switch {
	case err != nil:
		return "", usagef("%w", err)
	case len(text) > protocol.MaxJSONBytes:
		return "", usagef("%s is longer than %d bytes", path, protocol.MaxJSONBytes)
	case len(strings.TrimSpace(string(text))) == 0:
		return "", usagef("%s is empty: write JSON to it", path)
	}
	return string(text), nil
}

// biases is the flag for biases of tokens.
type biases []protocol.Bias

// Set adds a bias. With Type and String it implements pflag.Value.
func (b *biases) Set(text string) error {
	id, value, is := strings.Cut(text, "=")
	token, err := strconv.ParseInt(id, 10, 32)
	bias, err2 := strconv.ParseFloat(value, 64)
	if !is || err != nil || err2 != nil {
		return fmt.Errorf("want ID=VALUE, such as 50256=-100")
	}
	*b = append((*b)[:len(*b):len(*b)], protocol.Bias{Token: int32(token), Bias: bias})
	return nil
}

// Type returns the placeholder that help shows.
func (b *biases) Type() string { return "ID=VALUE" }

// String lists the biases.
func (b *biases) String() string {
	var list []string
	for _, one := range *b {
		list = append(list, fmt.Sprintf("%d=%g", one.Token, one.Bias))
	}
	return strings.Join(list, ",")
}

// reset removes all biases.
func (b *biases) reset() { *b = nil }
