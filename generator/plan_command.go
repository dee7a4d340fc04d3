//go:build linux

package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/plan"
)

// planCommand prints the memory that a model takes on a GPU. No GPU is needed.
func (p *program) planCommand() *cobra.Command {
	var o config.Options
	var vram int64
	var asJSON bool
	all := append(config.Settings(&o), config.NewBytes("vram",
		"memory of the GPU, as in 24GiB (0: as much as is needed)", &vram))
	settings := config.Pick(all, "model", "name", "device", "gpus", "gpu-link", "max-seq-len", "max-batch", "host-cache",
		"cache-dir", "cache-dir-bytes", "graph-memory", "max-graphs", "precapture", "draft", "draft-tokens",
		"draft-window",
		"vram")
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print the memory that a model takes on a GPU (none is needed), or on this machine",
		Long: "plan reads config.json and the headers of the weights, if there are any, or those of a GGUF file. It\n" +
			"prints the memory of weights, KV cache, arena, graphs and context; with --vram also the largest batch\n" +
			"and the longest context that fit. With --device host it plans for this machine's processors, and names the limit that\n" +
			"binds: free memory, a cgroup's or an rlimit. Exit code 78 if not even one sequence fits; then it\n" +
			"names the setting to lower.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.ReadEnvironment(p.env, cmd.Flags().Changed, settings); err != nil {
				return err
			}
			p.remarkMisspelt()
			if err := p.locate(&o); err != nil {
				return err
			}
			return printPlan(p.stdout, o, vram, asJSON)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printPlan(w io.Writer, o config.Options, vram int64, asJSON bool) error {
	files, name, err := assembly.ModelFiles(o)
	if err != nil {
		return err
	}
	c, use, err := assembly.Headers(files)
	if err != nil {
		return assembly.CannotServe(assembly.Place(o.Model), err)
	}
	if err := assembly.DraftHeaders(o, c, &use); err != nil {
		return err
	}
	r, err := plan.ReportFor(c, use, o, name, vram)
	if err != nil && r.Model == "" {
		return config.Refuse(config.ErrConfig, "%w", err)
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if encoded := e.Encode(r); encoded != nil {
			return encoded
		}
	} else {
		r.Print(w)
	}
	if err != nil {
		return config.Refuse(config.ErrConfig, "%s does not fit: %w", name, err)
	}
	return nil
}
