package main

import (
	"fmt"

	"reel.internal/reel/client"
)

// stranger is the process that listens on the socket, if it belongs to neither this user
// nor root: it reads the prompt and writes the answer. A completion begins with a note
// about it, in case somebody squats the socket. The service's user gets no note; only
// status, top, doctor and errors name it.
type stranger struct {
	peer  client.Peer // of the last connection
	known bool
	told  bool // this command has printed it
}

// meet records the listening process; it is an OnPeer.
func (s *stranger) meet(p client.Peer) { s.peer, s.known = p, p.Foreign() }

// meetAndPrint calls meet, and prints a note if a person waits for a completion.
func (s *stranger) meetAndPrint(p client.Peer) {
	s.meet(p)
	if messages := stderr(); s.known && !s.told && !p.Service() && messages.terminal {
		fmt.Fprintln(messages, "reel: note: "+s.text())
		s.told = true
	}
}

// text describes the stranger. It is empty if there is none or the note was printed.
func (s *stranger) text() string {
	if !s.known || s.told {
		return ""
	}
	return fmt.Sprintf("%s serves %s, neither you nor root", oneLine(s.peer.String()), oneLine(s.peer.Socket))
}
