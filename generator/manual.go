//go:build linux && manual

package main

import (
	"fmt"
	"os"

	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/systemd/manual"
)

// With the tag manual the program writes its man pages and completions into the folder given
// as its first argument, and exits.
func init() {
	p := program{env: os.Getenv, stdout: os.Stdout, stderr: logging.NewQueue(os.Stderr)}
	if err := manual.Write(p.command(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
