package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"reel.internal/reel/client"
)

// sleepCommand returns the command that has an idle generator leave its device.
func (a *app) sleepCommand() *cobra.Command {
	var idle time.Duration
	cmd := &cobra.Command{
		Use:   "sleep",
		Short: "Have the generator end until the next request, so that its device is free",
		Long: "Have the generator end if no request runs, so that its device is free. A service\n" +
			"manager's socket starts it again at the next request; without one the generator\n" +
			"refuses. Only its own user, root and users whom its operator names (--allow-sleep)\n" +
			"may ask. One that sleeps already is not woken.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dialWith(cmd.Context(), client.Options{NoWake: true})
			if err == nil {
				defer c.Close()
				err = c.Sleep(cmd.Context(), idle)
			}
			if err != nil && !errors.Is(err, client.ErrSleeping) {
				return err
			}
			return writeRows(stdout(), [][2]string{{"state", sleepingText}})
		},
	}
	cmd.Flags().Var((*seconds)(&idle), "idle", "only if its last request ended so long ago, such as 30s")
	return cmd
}
