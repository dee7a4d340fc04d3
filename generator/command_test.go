//go:build linux

package main

import (
	"os"
	"testing"

	"reel.internal/reel/generator/internal/assembly"
)

// TestMain also runs a chat template, in the process that a test starts for it.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == assembly.WorkerName {
		main()
	}
	os.Exit(m.Run())
}
