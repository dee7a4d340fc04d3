package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// openTerminal opens a pseudo-terminal in raw mode: bytes written to theirs are read
// from ours unchanged.
func openTerminal() (ours, theirs *os.File, err error) {
	ours, theirs, err = openCooked()
	if err != nil {
		return nil, nil, err
	}
	_, err = term.MakeRaw(int(theirs.Fd()))
	return ours, theirs, err
}

// openCooked opens a pseudo-terminal in the mode in which shells leave it.
func openCooked() (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	return ours, theirs, err
}
