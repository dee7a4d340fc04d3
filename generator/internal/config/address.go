package config

import (
	"errors"
	"net/netip"
	"strings"
)

// ErrMetricsAddress refuses an address that other machines could reach, and text that
// is no address.
var ErrMetricsAddress = errors.New("metrics: give a port of 127.0.0.1 or [::1], as in 127.0.0.1:9464, " +
	"or unix: and an absolute path")

// MetricsAddress returns the network and the address, for package net, of a value of
// --metrics. Names are refused, localhost too, because others decide what they resolve
// to. Errors: ErrMetricsAddress.
func MetricsAddress(text string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return "", "", ErrMetricsAddress
		}
		return "unix", path, nil
	}
	port, err := netip.ParseAddrPort(text)
	if err != nil || !port.Addr().IsLoopback() {
		return "", "", ErrMetricsAddress
	}
	return "tcp", text, nil
}
