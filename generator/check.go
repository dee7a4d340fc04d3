//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
)

// checkCommand proves that the model's passes can be captured and replayed.
func (p *program) checkCommand() *cobra.Command {
	var o config.Options
	var verbose bool
	settings := config.Settings(&o)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Prove that the model's passes can be captured, and that replays are right",
		Long: "check captures every graph that the generator would capture at start. For each it runs the pass\n" +
			"op by op and names each op that cannot be captured, then compares replays, exact and padded,\n" +
			"with the eager run over poisoned memory, bit for bit. With --guard every buffer, and every\n" +
			"layer's keys and values, lie between canaries, and a write past them is a fault too.\n" +
			"Exit code 1 if it finds a fault.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.readForDevice(cmd, settings, &o); err != nil {
				return err
			}
			return check(p.stdout, o, verbose)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().BoolVar(&o.Guard, "guard", false, "find writes past a buffer (takes several times the memory)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print every op of every pass")
	return cmd
}

// errFaults reports faults that check has printed.
var errFaults = errors.New("the check found faults: see above")

// check prints a line for each graph, and returns errFaults if any has a fault.
func check(w io.Writer, o config.Options, verbose bool) error {
	l, err := assembly.Prepare(o, func(float64, string) {})
	if err != nil {
		return err
	}
	// Every byte of the KV pool is compared, so it gets only the pages that the trials need.
	opts := l.EngineOptions
	opts.ReservePages = 0
	opts.Pages = max(opts.MaxBatch+opts.Reserve, (opts.Context+opts.PageTokens-1)/opts.PageTokens)
	e, err := engine.New(l.Hardware.Device, l.Model, opts)
	if err != nil {
		return err
	}
	graphs, faults := 0, 0
	failed := e.Check(func(c engine.Checked, err error) {
		graphs++
		if err != nil {
			faults++
		}
		printChecked(w, c, err, verbose)
	})
	fmt.Fprintf(w, "%s on %s: %d graphs checked, %d at fault\n", l.Name, l.Hardware.Name(), graphs, faults)
	if err := e.Close(); err != nil {
		return err
	}
	if failed != nil {
		return errFaults
	}
	return nil
}

func printChecked(w io.Writer, c engine.Checked, err error, verbose bool) {
	verdict := fmt.Sprintf("%d ops ready, %d replays equal the eager run", len(c.Report.Ops), c.Verified)
	if err != nil {
		verdict = "FAULT: " + err.Error()
	}
	fmt.Fprintf(w, "%-12s %s\n", c.Report.Key, verdict)
	if verbose || err != nil {
		fmt.Fprint(w, c.Report)
	}
}
