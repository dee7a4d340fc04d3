//go:build !cuda && !fault

package hardware

// claim takes the host, which any number of programs share. In a build with the tag fault one at a time may have it.
func claim() error { return nil }
