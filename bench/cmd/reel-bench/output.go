package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"reel.internal/reel/bench"
)

// output holds the flags for the form of a command's output.
type output struct {
	json, markdown, csv bool
	plot                string
}

func (o *output) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print one JSON object, for compare and report")
	f.BoolVar(&o.markdown, "md", false, "print Markdown tables")
	f.BoolVar(&o.csv, "csv", false, "print CSV")
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
}

// check refuses several forms at once.
func (o *output) check() error {
	if o.json && o.markdown || o.json && o.csv || o.markdown && o.csv {
		return fmt.Errorf("%w: --json, --md and --csv: one of them", errUsage)
	}
	return nil
}

func (o *output) plotFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.plot, "plot", "", "draw it to a `file`, .svg or .png")
}

// measured prints a new result, after adding the flags of the measurement.
func (o *output) measured(cmd *cobra.Command, r bench.Result) error {
	flags := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = f.Value.String() })
	r.Header().Provenance.Flags = flags
	return o.write(cmd, r)
}

// write prints r, and plots it if --plot is given.
func (o *output) write(cmd *cobra.Command, r bench.Result) error {
	for _, warning := range r.Header().Warnings {
		cmd.PrintErrf("reel-bench: %s\n", warning)
	}
	if o.plot != "" {
		if err := bench.Draw(o.plot, r.Charts()); err != nil {
			return err
		}
	}
	if o.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
	}
	return o.tables(cmd.OutOrStdout(), r.Tables())
}

// comparison prints c.
func (o *output) comparison(cmd *cobra.Command, c *bench.Comparison) error {
	if o.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(c)
	}
	return o.tables(cmd.OutOrStdout(), c.Tables())
}

func (o *output) tables(w io.Writer, tables []bench.Table) error {
	switch {
	case o.markdown:
		return bench.Markdown(w, tables)
	case o.csv:
		return bench.CSV(w, tables)
	}
	return bench.Text(w, tables)
}

// progress returns a progress bar on a terminal that can redraw a line, otherwise nil.
func progress(cmd *cobra.Command) bench.Progress {
	f, ok := cmd.ErrOrStderr().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(done, of int) {
		if bar == nil {
			bar = progressbar.NewOptions(of, progressbar.OptionSetWriter(f),
				progressbar.OptionSetDescription(cmd.Name()), progressbar.OptionSetWidth(30),
				progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
		}
		_ = bar.Set(done) // a failing terminal does not stop the measurement
	}
}
