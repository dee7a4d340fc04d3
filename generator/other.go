//go:build !linux

// Command reel-generator serves a language model on Linux.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "reel-generator: Reel runs on Linux (amd64 and arm64); this is %s\n", runtime.GOOS)
	os.Exit(1)
}
