//go:build linux

package main

import (
	"os"
	"testing"

	"reel/generator/internal/assembly"
)

// TestMain is also the process that runs a chat template.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == assembly.WorkerName {
		main()
	}
	os.Exit(m.Run())
}
