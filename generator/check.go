//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"reel/generator/internal/assembly"
	"reel/generator/internal/config"
	"reel/generator/internal/engine"
)

// checkCommand proves that the model's pass can be captured and replayed.
func (p *program) checkCommand() *cobra.Command {
	var o config.Options
	var verbose bool
	settings := config.Settings(&o)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Prove that the model's passes can be captured, and that replays are right",
		Long: "check captures every graph that the generator would capture at start. For each it runs the pass\n" +
			"op by op and names what a capture does not bear, then compares replays, exact and padded, with\n" +
			"the eager run over poisoned memory, bit for bit. With --guard every buffer, and every layer's\n" +
			"keys and values, stand apart between canaries, and what was written past them is a fault too.\n" +
			"Exit code 1 where it finds a fault.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.readForDevice(cmd, settings, &o); err != nil {
				return err
			}
			return check(p.stdout, o, verbose)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().BoolVar(&o.Guard, "guard", false, "find what is written past a buffer (takes several times the memory)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print every op of every pass")
	return cmd
}

// errFaults says that check found something.
var errFaults = errors.New("the check found faults: see above")

// check prints a line for each graph and returns errFaults where one is at fault.
func check(w io.Writer, o config.Options, verbose bool) error {
	l, err := assembly.Prepare(o, func(float64, string) {})
	if err != nil {
		return err
	}
	// Every byte of the KV pool is compared, so it has what the trials need and no more.
	l.EngineOptions.ReservePages = 0
	l.EngineOptions.Pages = max(l.EngineOptions.MaxBatch+l.EngineOptions.Reserve, (l.EngineOptions.Context+l.EngineOptions.PageTokens-1)/l.EngineOptions.PageTokens)
	e, err := engine.New(l.Hardware.Device, l.Model, l.EngineOptions)
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
