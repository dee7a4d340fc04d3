//go:build manual

package main

import (
	"fmt"
	"os"

	"reel.internal/reel/systemd/manual"
)

// With the tag manual the program only writes its man pages and completions into the
// directory named by its first argument.
func init() {
	if err := manual.Write((&app{}).command(), os.Args[1]); err != nil {
		fmt.Fprintln(stderr(), err)
		os.Exit(1)
	}
	os.Exit(0)
}
