//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/hardware"
)

// tryDriverCommand returns the hidden command with which reel-generator asks reel-generator-cuda whether the driver
// takes it.
func tryDriverCommand() *cobra.Command {
	return &cobra.Command{
		Use: hardware.TryName, Hidden: true, Args: noArguments, Short: "See whether the GPU driver takes this program",
		RunE: func(*cobra.Command, []string) error { return hardware.TryCUDA() },
	}
}
