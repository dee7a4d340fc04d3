package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// tokenizeCommand returns the command that prints the tokens of a text.
func (a *app) tokenizeCommand() *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "tokenize [flags] TEXT...",
		Short: "Show the token ids that a prompt becomes",
		Long: "Show the token ids that a prompt becomes, in a form that --tokens takes.\n" +
			"The text comes from the words, standard input or -f as a prompt does.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, words []string) error {
			if err := checkEmpty(cmd.Flags(), "file"); err != nil {
				return err
			}
			text, err := prompt(cmd.Context(), words, file)
			if err != nil {
				return err
			}
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			tokenize := c.Tokenize
			if a.special != nil && !*a.special {
				tokenize = c.TokenizeData
			}
			ids, err := tokenize(cmd.Context(), text)
			if err != nil {
				return err
			}
			w := stdout()
			return writeTokens(w, ids, asJSON)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the text from `FILE`; - is standard input")
	a.specialFlag(cmd.Flags(), "as tokens")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// writeTokens prints ids on one line, separated by commas.
func writeTokens(w io.Writer, ids []int32, asJSON bool) error {
	if asJSON {
		return closedPipe(writeJSON(w, map[string]any{"tokens": ids, "count": len(ids)}))
	}
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = fmt.Sprint(id)
	}
	_, err := fmt.Fprintln(w, strings.Join(words, ","))
	return closedPipe(err)
}
