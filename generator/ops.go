//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/measure"
)

// opsCommand measures every op at the model's shapes.
func (p *program) opsCommand() *cobra.Command {
	var o config.Options
	var ops measure.Passes
	var asJSON bool
	settings := config.Settings(&o)
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "Measure each op of the model's passes",
		Long: "ops captures the ops of each kind, of all layers, into one graph and replays it. It prints what one\n" +
			"launch takes and the rates at which it moves bytes and computes, beside the rate at which the device\n" +
			"reads memory and does nothing else.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.readForDevice(cmd, settings, &o); err != nil {
				return err
			}
			report, err := measure.Run(o, ops, release())
			if err != nil {
				return err
			}
			return report.Write(p.stdout, asJSON)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().StringVar(&ops.Decode, "decode", "1,8", "`batches` of the decode passes")
	cmd.Flags().StringVar(&ops.Prefill, "prefill", "50,100,200,400",
		"`tokens` of the prefill passes, those that fit a step")
	cmd.Flags().IntVar(&ops.PromptTokens, "prompt-tokens", 0,
		"`length` of the prompts of a prefill pass, as many as it takes; 0: each pass is one prompt")
	cmd.Flags().IntVar(&ops.Context, "context", 256, "tokens that each row of a decode attends to")
	cmd.Flags().BoolVar(&ops.Served, "served", false,
		"measure in memory for as many rows, sequences and positions as are served, after a step of the most rows")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
