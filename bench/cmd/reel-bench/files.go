package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"reel.internal/reel/bench"
)

// compareCommand returns the command that compares two results.
func compareCommand() *cobra.Command {
	var out output
	var benchstat bool
	cmd := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Compare two results: ratios, and a verdict if they differ beyond their noise",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 || benchstat && len(args) == 1 {
				return nil
			}
			return fmt.Errorf("%w: compare takes two files of --json, and with --benchstat one: %q", errUsage, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var results []bench.Result
			for _, path := range args {
				r, err := bench.ReadResult(path)
				if err != nil {
					return err
				}
				results = append(results, r)
			}
			if benchstat {
				return bench.Benchstat(cmd.OutOrStdout(), results...)
			}
			c, err := bench.Compare(results[0], results[1])
			if err != nil {
				return err
			}
			return out.comparison(cmd, c)
		},
	}
	out.flags(cmd)
	cmd.Flags().BoolVar(&benchstat, "benchstat", false, "print Go's benchmark format instead, a line for each run")
	return cmd
}

// showCommand returns the command that prints a saved result.
func showCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "show FILE.json",
		Short: "Print or plot a result saved as JSON",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return fmt.Errorf("%w: show takes one file of --json: %q", errUsage, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := bench.ReadResult(args[0])
			if err != nil {
				return err
			}
			return out.write(cmd, r)
		},
	}
	out.flags(cmd)
	out.plotFlag(cmd)
	return cmd
}

// limitsCommand returns the command that compares measurements with an H200's limits.
func limitsCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "limits FOLDER",
		Short: "Print how close the results of tools/limit_gpu.sh come to the limits of one H200",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return fmt.Errorf("%w: limits takes one folder of results: %q", errUsage, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := bench.ReadLimits(args[0])
			if err != nil {
				return err
			}
			return out.tables(cmd.OutOrStdout(), l.Tables())
		},
	}
	cmd.Flags().BoolVar(&out.markdown, "md", false, "print Markdown tables")
	cmd.Flags().BoolVar(&out.csv, "csv", false, "print CSV")
	cmd.PreRunE = func(*cobra.Command, []string) error { return out.check() }
	return cmd
}

// reportCommand returns the command that writes README's part about the results.
func reportCommand() *cobra.Command {
	var readme, results string
	var check bool
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write the README's table and plot from the results",
		Args:  noWords,
		RunE: func(*cobra.Command, []string) error {
			r, err := bench.MakeReport(readme, results)
			if err != nil {
				return err
			}
			if check {
				return r.Check()
			}
			return r.Write()
		},
	}
	cmd.Flags().StringVar(&readme, "readme", "README.md", "the `file` to write the table to")
	cmd.Flags().StringVar(&results, "results", "bench/results", "`folder` with a folder of results for each machine")
	cmd.Flags().BoolVar(&check, "check", false, "write nothing; fail if the files differ from the report")
	return cmd
}
