package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// atOnce is how many lines are embedded at once. A connection may have twice as many requests.
const atOnce = protocol.MaxRequests / 2

// embedder is what the flags of reel embed have.
type embedder struct {
	request     client.EmbedRequest
	file        string
	lines, json bool
}

// embedCommand returns the command that prints embeddings.
func (a *app) embedCommand() *cobra.Command {
	var e embedder
	cmd := &cobra.Command{
		Use:   "embed [flags] TEXT...",
		Short: "Print the embedding of a text",
		Long: "Print the embedding of a text, of a model that is meant for embeddings: the numbers of\n" +
			"a vector on one line. The text comes from the words, standard input or -f as a prompt\n" +
			"does. With --lines each line of standard input or of -f is a text of its own, and gets\n" +
			"a line of the output, in the same order.",
		Example: "  reel embed --prompt-name query \"What is the capital of China?\"\n" +
			"  reel embed --lines --json -f passages.txt > vectors.jsonl",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, words []string) error {
			if err := checkEmpty(cmd.Flags(), "file"); err != nil {
				return err
			}
			e.request.Special = a.special
			return a.embed(cmd.Context(), &e, words)
		},
	}
	r, flags := &e.request, cmd.Flags()
	flags.StringVarP(&e.file, "file", "f", "", "read the text from `FILE`; - is standard input")
	flags.BoolVar(&e.lines, "lines", false, "embed each line by itself")
	flags.Int32SliceVar(&r.Tokens, "tokens", nil, "the text as token `ids`, such as 1,2,3")
	flags.Lookup("tokens").DefValue = ""
	flags.Var(optional("name", &r.PromptName, func(s string) (string, error) { return s, nil }), "prompt-name",
		"put the model's own prompt of this name before the text, such as query; --prompt-name=: none "+
			"(default: the model's)")
	flags.Var(optional("bool", &r.Normalize, strconv.ParseBool), "normalize",
		"give vectors the length 1; --normalize=false: as the model computes them (default: the model's)")
	flags.Lookup("normalize").NoOptDefVal = "true"
	flags.Var(optional("int", &r.Dimensions, strconv.Atoi), "dimensions", "how many leading elements of the vector to print (default: all)")
	flags.BoolVar(&r.Truncate, "truncate", false, "cut a text that does not fit the context")
	flags.Var(oneOf{&r.Cache, []string{protocol.CacheOn, protocol.CacheRead, protocol.CacheOff}}, "cache",
		"begin with cached pages of earlier texts and leave this text's (on), only begin with them (read), or "+
			"neither (off) (default on)")
	a.specialFlag(flags, "as tokens")
	userFlag(flags, &r.User, "whose request it is, within your uid")
	flags.BoolVar(&e.json, "json", false, "print each embedding as a JSON object, with its usage")
	return cmd
}

// embed prints the embeddings of one text or of the lines of a file.
func (a *app) embed(ctx context.Context, e *embedder, words []string) error {
	switch {
	case e.request.Tokens != nil && (len(words) > 0 || e.file != "" || e.lines || a.special != nil ||
		e.request.PromptName != nil):
		return usagef("--tokens takes the place of a text, and of --lines, --special and --prompt-name")
	case e.lines && len(words) > 0:
		return usagef("--lines reads standard input or -f FILE, and takes no words")
	}
	if e.lines {
		return a.embedLines(ctx, e)
	}
	if e.request.Tokens == nil {
		text, err := prompt(ctx, words, e.file)
		if err != nil {
			return err
		}
		e.request.Text = text
	}
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	v, err := c.Embed(ctx, e.request)
	if err != nil {
		return err
	}
	return e.write(stdout(), v)
}

// write prints an embedding on one line.
func (e *embedder) write(w io.Writer, v *client.Embedding) error {
	if e.json {
		return closedPipe(writeJSON(w, v))
	}
	numbers := make([]string, len(v.Vector))
	for i, f := range v.Vector {
		numbers[i] = strconv.FormatFloat(float64(f), 'g', -1, 32)
	}
	_, err := fmt.Fprintln(w, strings.Join(numbers, " "))
	return closedPipe(err)
}

// embedLines prints the embedding of each line, several of which are computed at once.
func (a *app) embedLines(ctx context.Context, e *embedder) error {
	in := os.Stdin
	if e.file != "" && e.file != "-" {
		f, err := os.Open(e.file)
		if err != nil {
			return usagef("%w", err)
		}
		defer f.Close()
		in = f
	}
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := stdout()
	for answer := range e.ask(ctx, c, readLines(in)) {
		r := <-answer
		if r.err == nil {
			r.err = e.write(w, r.vector)
		}
		if r.err != nil {
			return r.err
		}
	}
	return ctx.Err()
}

// embedded is the result of a line.
type embedded struct {
	vector *client.Embedding
	err    error
}

// ask requests the embeddings of all lines, and sends a channel for the result of each, in their order. After an error
// of the input that is the last one.
func (e *embedder) ask(ctx context.Context, c *client.Client, lines <-chan line) <-chan chan embedded {
	answers := make(chan chan embedded, atOnce)
	go func() {
		defer close(answers)
		for number := 1; ; number++ {
			l, answer := (&plainLines{lines: lines}).next(ctx, ""), make(chan embedded, 1)
			if errors.Is(l.err, io.EOF) {
				return
			}
			select {
			case answers <- answer:
			case <-ctx.Done():
				return
			}
			if l.err != nil {
				answer <- embedded{err: ignoreEOF(l.err)}
				return
			}
			go func() { answer <- e.one(ctx, c, l.text, number) }()
		}
	}()
	return answers
}

// one requests the embedding of one line.
func (e *embedder) one(ctx context.Context, c *client.Client, text string, number int) (r embedded) {
	request := e.request
	request.Text = text
	r.vector, r.err = c.Embed(ctx, request)
	if told := (*client.Error)(nil); errors.As(r.err, &told) {
		named := *told
		named.Message = fmt.Sprintf("line %d: %s", number, told.Message)
		r.err = &named
	}
	return r
}
