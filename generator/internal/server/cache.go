package server

import (
	"os"

	"reel.internal/reel/protocol"
)

// cache answers a CacheRequest. A draining generator still answers.
func (c *conn) cache(m *protocol.CacheRequest) *protocol.Error {
	if e := m.Validate(); e != nil {
		return e
	}
	user := c.user(&m.User)
	scope := c.model.Engine.Stats().Cache.Scope
	if m.Drop && scope == protocol.ScopeAll && !mayDropAll(c.peer.uid) {
		return protocol.Errorf(protocol.CodeForbidden, "ask the user who runs the generator, or root",
			"all users share this generator's cache, so only its own user and root may drop it")
	}
	if m.Drop {
		c.server.rereads.forget(user, scope == protocol.ScopeAll)
	}
	cached, err := c.model.Engine.Cached(user, m.Drop)
	if err != nil {
		return asError(err)
	}
	c.send(&cached)
	return nil
}

// mayDropAll reports whether a user may drop pages of other users.
func mayDropAll(uid uint32) bool { return uid == 0 || int(uid) == os.Getuid() }
