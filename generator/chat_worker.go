//go:build linux

package main

import (
	"os"

	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/chat"
)

// workerCommand returns the hidden command that runs chat templates.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: assembly.WorkerName, Hidden: true, Args: noArguments, Short: "Run a chat template for the generator",
		RunE: func(*cobra.Command, []string) error { return chat.Serve(os.Stdin, os.Stdout) },
	}
}
