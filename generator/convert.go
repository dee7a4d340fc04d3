//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/convert"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/tokenizer"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// convertCommand writes a checkpoint as a GGUF file with quantised matrices.
func (p *program) convertCommand() *cobra.Command {
	var job convert.Job
	cmd := &cobra.Command{
		Use:   "convert DIR OUT.gguf",
		Short: "Write a model's directory as a GGUF file with quantised weights",
		Long: "convert reads a directory with config.json, tokenizer.json and safetensors in BF16, F16 or F32, or\n" +
			"ORG/NAME from the Hugging Face cache, and writes a GGUF file for Reel, llama.cpp and other readers.\n" +
			"Blocks equal those of llama.cpp, without an importance matrix: q8_0 and q4_0 in all matrices, or the\n" +
			"mixture q4_k_m, mostly Q4_K and Q6_K; matrices whose columns are no whole blocks are F16. It prints\n" +
			"sizes, and what the weights lose. OUT.gguf.new becomes OUT.gguf when it is whole. Exit\n" +
			"code 78 if the model cannot be converted or OUT.gguf exists, 1 if writing fails or a signal ends it.",
		Args: twoArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			job.Out = args[1]
			return p.convert(args[0], job)
		},
	}
	cmd.Flags().StringVar((*string)(&job.Target), "to", string(convert.Q4_K_M), "`format`: "+convert.Targets())
	cmd.Flags().BoolVar(&job.Force, "force", false, "replace OUT.gguf if it exists")
	return cmd
}

// twoArguments wants a directory and a name that ends in .gguf.
func twoArguments(_ *cobra.Command, args []string) error {
	if len(args) != 2 || !strings.HasSuffix(args[1], ".gguf") || args[0] == "" {
		return config.Refuse(config.ErrUsage, "convert wants a model's directory and a name that ends in .gguf: "+
			"see reel-generator convert --help")
	}
	return nil
}

// convert runs a job on the checkpoint in a directory, or of a name.
func (p *program) convert(dir string, job convert.Job) error {
	o := config.Options{Model: dir}
	if err := p.locate(&o); err != nil {
		return err
	}
	files, name, err := assembly.ModelFiles(o)
	if err != nil {
		return err
	}
	checkpoint, err := assembly.OpenCheckpoint(files)
	if err != nil {
		return err
	}
	defer checkpoint.File.Close()
	job.Name, job.Config, job.Tensors = name, checkpoint.Config, checkpoint.Tensors
	job.Unchanged = checkpoint.File.Unchanged
	warnings, err := addTokenizer(&job, files, checkpoint)
	if err != nil {
		return err
	}
	for _, w := range append(warnings, leftOut(job.Config)...) {
		fmt.Fprintf(p.stderr, "reel-generator: %s\n", w)
	}
	begun := time.Now()
	report, err := p.runConvert(job)
	if err != nil {
		if changed := checkpoint.File.Unchanged(); changed != nil {
			err = changed // explains any other error
		}
		return refusedConversion(err)
	}
	seconds := time.Since(begun).Seconds()
	fmt.Fprintf(p.stdout, "%s to %s: %s in %.1f s, %.0f MB/s of the source\n\n", name, job.Target, job.Out, seconds,
		float64(report.Source)/1e6/seconds)
	return report.Print(p.stdout)
}

// leftOut says what of a config GGUF has no place for, and what to do instead.
func leftOut(c model.Config) (all []string) {
	if c.Embedding != nil && len(c.Embedding.Prompts) > 0 {
		all = append(all, "GGUF has no place for the prompts of config_sentence_transformers.json: give the text of one with "+
			"the text to embed")
	}
	if len(c.Suppressed) > 0 {
		all = append(all, fmt.Sprintf("GGUF has no place for the suppress_tokens of generation_config.json: give requests a "+
			"logit_bias of -100 for %v", c.Suppressed))
	}
	return all
}

// runConvert runs a job until it ends or a signal comes.
func (p *program) runConvert(job convert.Job) (convert.Report, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case s := <-p.signals:
			cancel(fmt.Errorf("%w, %v: %s was not written", config.ErrSignal, s, job.Out))
		case <-ctx.Done():
		}
	}()
	return convert.Run(ctx, job)
}

// addTokenizer adds the metadata of the tokenizer. A model without one has none.
func addTokenizer(job *convert.Job, files fs.FS, c assembly.Checkpoint) (warnings []string, err error) {
	pairs, warnings, err := tokenizer.ToGGUF(files, tokenizer.GGUFModel{Architecture: ggufmake.Architecture(c.Config),
		Rows: c.Config.Vocab, ChatTemplate: c.ChatTemplate, Tokens: c.Tokens, EndTokens: c.Config.EOS})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return []string{"the directory has no tokenizer.json: a reader of the file can take prompts of token ids only; " +
			"download the checkpoint's tokenizer.json and convert again"}, nil
	case err != nil:
		return nil, config.OfKind(err, config.ErrConfig)
	}
	for _, pair := range pairs {
		job.Pairs = append(job.Pairs, ggufmake.Pair(pair))
	}
	return warnings, nil
}

// refusedConversion marks errors that the same command would meet again as [config.ErrConfig].
func refusedConversion(err error) error {
	for _, kind := range []error{convert.ErrTarget, convert.ErrExists, convert.ErrSource,
		convert.ErrRange, model.ErrUnsupported, weights.ErrNotFinite} {
		if errors.Is(err, kind) {
			return config.OfKind(err, config.ErrConfig)
		}
	}
	return err
}
