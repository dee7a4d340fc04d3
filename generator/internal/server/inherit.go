package server

import "net"

// open is the socket that the server takes connections from.
func (s *Server) open() (*boundSocket, error) {
	if s.opts.Inherited != nil {
		return inherit(s.opts.Inherited), nil
	}
	return bind(s.opts.Socket)
}

// inherit listens on a socket that a service manager has bound and keeps: closing
// it leaves the path, and clients that connect meanwhile wait for the next generator.
func inherit(l *net.UnixListener) *boundSocket {
	l.SetUnlinkOnClose(false)
	return &boundSocket{UnixListener: l, path: l.Addr().String()}
}
