// Recording types commands into a shell on a pseudo-terminal and writes an SVG that shows the
// terminal as it was, in real time. make recording runs it.
//
// usage: recording OUT.svg COMMAND...
package main

import (
	"fmt"
	"os"
	"time"
)

// Size of the terminal, in characters. The height grows with the output.
const (
	columns = 84
	rows    = 40
)

// Times for people who read: between typed characters, after each command, and after the last.
const (
	typing = 35 * time.Millisecond
	pause  = 1200 * time.Millisecond
	still  = 8 * time.Second
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: recording OUT.svg COMMAND...")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// run records commands and writes the picture.
func run(path string, commands []string) error {
	s := shell{typing: typing, pause: pause}
	events, err := s.record(commands)
	if err != nil {
		return err
	}
	pieces, height, err := layout(events, columns)
	if err != nil {
		return err
	}
	return os.WriteFile(path, draw(pieces, columns, height, still), 0o644)
}
