package main

import (
	"fmt"

	"reel/client"
)

// stranger is who listens on the socket where that is neither this user nor root:
// whoever it is reads the prompt and writes the answer. The line that a completion
// begins with is for a socket that somebody squats; the user for whom root set up
// the service gets none, and is named by status, top, doctor and errors alone.
type stranger struct {
	peer  client.Peer // of the last connection
	known bool
	told  bool // this command has named it
}

// meet notes who listens; it is an OnPeer.
func (s *stranger) meet(p client.Peer) { s.peer, s.known = p, p.Foreign() }

// meetAndTell is meet, and tells a person who waits for a completion.
func (s *stranger) meetAndTell(p client.Peer) {
	s.meet(p)
	if messages := stderr(); s.known && !s.told && !p.Service() && messages.terminal {
		fmt.Fprintln(messages, "reel: note: "+s.text())
		s.told = true
	}
}

// text names a stranger, and is empty where there is none, or was named before.
func (s *stranger) text() string {
	if !s.known || s.told {
		return ""
	}
	return fmt.Sprintf("%s serves %s, neither you nor root", oneLine(s.peer.String()), oneLine(s.peer.Socket))
}
