//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"reel.internal/reel/client"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/protocol"
)

// errNoMemory is the error of a status without memory.
var errNoMemory = errors.New("the generator does not report its memory: it is still loading, or older than " +
	"this program; try again when reel status says ready")

// vramCommand shows a running generator's memory beside its plan.
func (p *program) vramCommand() *cobra.Command {
	var o config.Options
	var watch bool
	interval := time.Second
	settings := config.Pick(config.Settings(&o), "socket")
	cmd := &cobra.Command{
		Use:   "vram",
		Short: "Show the device memory of a running generator beside its plan",
		Long: "vram asks the running generator for its device memory, by kind, and prints it beside the plan.\n" +
			"With --watch it goes on, a line an interval in MiB, until Ctrl-C: all memory is taken at start,\n" +
			"so a column that keeps growing past its plan is a leak, or another program.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.ReadEnvironment(p.env, cmd.Flags().Changed, settings); err != nil {
				return err
			}
			p.remarkMisspelt()
			if watch && interval < 50*time.Millisecond {
				return config.Refuse(config.ErrUsage, "--interval %v: give 50ms or more", interval)
			}
			ask := func() (*protocol.Status, error) { return askMemory(o.Socket) }
			s, err := ask()
			if err != nil {
				return err
			}
			if err := printMemory(p.stdout, s); err != nil || !watch {
				return err
			}
			return p.watchMemory(s, ask, interval)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between two lines")
	return cmd
}

// askMemory asks the generator at socket for a status that has its memory.
func askMemory(socket string) (*protocol.Status, error) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	s, err := client.ReadStatus(ctx, client.Options{Socket: socket})
	if err == nil && len(s.Memory) == 0 {
		err = errNoMemory
	}
	return s, err
}

// printMemory prints a row for each kind of memory, and one for the device.
func printMemory(w io.Writer, s *protocol.Status) error {
	fmt.Fprintf(w, "%s on %s %s\n%-10s %14s %14s\n", s.Model, s.Device, s.Machine.Name, "", "planned", "in use")
	planned, used := int64(0), int64(0)
	for _, m := range s.Memory {
		fmt.Fprintf(w, "%-10s %14s %14s\n", m.Kind, plan.Size(m.Planned), plan.Size(m.Used))
		planned, used = planned+m.Planned, used+m.Used
	}
	fmt.Fprintf(w, "%-10s %14s %14s\n", "all", plan.Size(planned), plan.Size(used))
	_, err := fmt.Fprintf(w, "%-10s %14s %14s\n", "device", plan.Size(s.Machine.MemoryTotal),
		plan.Size(s.Machine.MemoryUsed))
	return err
}

// watchMemory prints a line each interval, until a signal or the generator's end. Changes are
// counted from first.
func (p *program) watchMemory(
	first *protocol.Status, ask func() (*protocol.Status, error), interval time.Duration,
) error {
	fmt.Fprintf(p.stdout, "\n%-10s %10s %10s", "MiB", "device", "change")
	for _, m := range first.Memory {
		fmt.Fprintf(p.stdout, " %10s", m.Kind)
	}
	fmt.Fprintln(p.stdout)
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for s := first; ; {
		if err := printMemoryLine(p.stdout, s, s.Machine.MemoryUsed-first.Machine.MemoryUsed); err != nil {
			return err
		}
		select {
		case <-p.signals:
			return nil
		case <-ticks.C:
		}
		var err error
		if s, err = ask(); err != nil {
			return err
		}
	}
}

// printMemoryLine prints the memory in use now, in MiB, and its change.
func printMemoryLine(w io.Writer, s *protocol.Status, change int64) error {
	fmt.Fprintf(w, "%-10s %10.1f %+10.1f", time.Now().Format(time.TimeOnly), mib(s.Machine.MemoryUsed), mib(change))
	for _, m := range s.Memory {
		mark := ""
		if m.Used > m.Planned {
			mark = "!"
		}
		fmt.Fprintf(w, " %10s", fmt.Sprintf("%s%.1f", mark, mib(m.Used)))
	}
	_, err := fmt.Fprintln(w)
	return err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
