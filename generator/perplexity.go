//go:build linux

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/measure"
)

// maxText bounds a text that perplexity scores, in bytes.
const maxText = 256 << 20

// perplexityCommand scores texts.
func (p *program) perplexityCommand() *cobra.Command {
	var o config.Options
	var windows measure.Windows
	var asJSON bool
	settings := config.Settings(&o)
	cmd := &cobra.Command{
		Use:   "perplexity FILE...",
		Short: "Measure how well the model predicts texts",
		Long: "perplexity reads files of text, and computes the probability that the model gives each token after the\n" +
			"tokens before it. It prints the mean of the negative logarithm in nats, and e to the power of that, the\n" +
			"perplexity. Lower is better. Models with different tokenizers are compared by nats per character. Each\n" +
			"file is scored by itself, in windows that overlap: each token once, after at least --window minus\n" +
			"--stride tokens, or all there are. - stands for standard input.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return config.Refuse(config.ErrUsage, "perplexity needs a file of text: see reel-generator perplexity --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			texts, err := readTexts(cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			if err := p.readForDevice(cmd, settings, &o); err != nil {
				return err
			}
			result, err := measure.RunPerplexity(o, windows, texts, release())
			if err != nil {
				return err
			}
			return result.Write(p.stdout, asJSON)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().IntVar(&windows.Size, "window", 0, "tokens of a window (0: the context, at most 1024)")
	cmd.Flags().IntVar(&windows.Stride, "stride", 0, "tokens from a window to the next (0: a quarter of a window)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// readTexts reads the named files; "-" names stdin.
func readTexts(stdin io.Reader, names []string) (texts []string, err error) {
	for _, name := range names {
		var text []byte
		if name == "-" {
			text, err = io.ReadAll(io.LimitReader(stdin, maxText+1))
			if err == nil && len(text) > maxText {
				err = fmt.Errorf("standard input has more than %d bytes", maxText)
			}
		} else {
			text, err = files.Read(files.Dir(filepath.Dir(name)), filepath.Base(name), maxText)
		}
		if err != nil {
			return nil, config.Refuse(config.ErrConfig, "the text cannot be read: %w", err)
		}
		if at := notUTF8(text); at >= 0 {
			if name == "-" {
				name = "standard input"
			}
			return nil, config.Refuse(config.ErrConfig, "%s is not UTF-8 at byte %d: convert it, as with iconv -t UTF-8, "+
				"or leave it out", name, at)
		}
		texts = append(texts, string(text))
	}
	return texts, nil
}

// notUTF8 returns where the first byte of text is that belongs to no character of UTF-8, or -1.
func notUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	at := 0
	for {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size <= 1 {
			return at
		}
		at += size
	}
}
