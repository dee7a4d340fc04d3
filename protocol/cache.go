package protocol

// Uses of the prefix cache: the values of the field cache of generate.
const (
	CacheOn   = "on"   // begins with pages of earlier prompts, and leaves its own to later ones
	CacheRead = "read" // begins with pages of earlier prompts, and leaves none
	CacheOff  = "off"  // computes the whole prompt, and leaves no pages
)

// CacheRequest asks for the cached pages that the user's prompts can find. It was added to
// version 1.
type CacheRequest struct {
	Type string `msgpack:"type"`
	// Drop forgets these pages first, except those that requests hold.
	Drop bool `msgpack:"drop,omitempty"`
	// User names the requests whose pages these are, by their field user; "" are those without one. It
	// was added to version 1.
	User string `msgpack:"user,omitempty"`
}

// Validate checks the user's length. The error's code is CodeBadRequest.
func (c *CacheRequest) Validate() *Error {
	if n := len(c.User); n > MaxUserBytes {
		return tooLong("user", n, MaxUserBytes)
	}
	return nil
}

// Tiers of the prefix cache: the values of the field tier of CacheTier.
const (
	TierDevice = "device" // the pool of KV pages
	TierHost   = "host"   // host memory
	TierDisk   = "disk"   // files that outlive a restart
)

// Cached answers a CacheRequest. Its JSON form has no type.
type Cached struct {
	Type       string      `msgpack:"type" json:"-"`
	Scope      string      `msgpack:"scope" json:"scope"`             // one of the Scope… values
	PageTokens int         `msgpack:"page_tokens" json:"page_tokens"` // tokens per page
	Dropped    int         `msgpack:"dropped" json:"dropped"`         // pages that this request has dropped
	Tiers      []CacheTier `msgpack:"tiers" json:"tiers"`
}

// CacheTier counts the pages on one tier that the user's prompts can find. A page may be on
// several tiers.
type CacheTier struct {
	Tier   string `msgpack:"tier" json:"tier"`
	Pages  int    `msgpack:"pages" json:"pages"`   // those that requests hold included
	Tokens int    `msgpack:"tokens" json:"tokens"` // of these pages
	Bytes  int64  `msgpack:"bytes" json:"bytes"`   // of these pages
}

// Scopes of the prefix cache: the values of the field scope of Cache and Cached.
const (
	ScopeUser = "user" // each user's prompts go on from that user's own
	ScopeAll  = "all"  // everybody's from everybody's
	ScopeOff  = "off"  // there is no cache
)

// Cache counts the prompts that looked for cached pages since the generator started. A prompt
// counts once its first token is sampled. Those of requests with CacheOff do not count.
type Cache struct {
	Scope        string `msgpack:"scope" json:"scope"` // one of the Scope… values; empty while unknown
	Requests     uint64 `msgpack:"requests" json:"requests"`
	Hits         uint64 `msgpack:"hits" json:"hits"`                   // requests that found a page or more
	PromptTokens uint64 `msgpack:"prompt_tokens" json:"prompt_tokens"` // of all these requests
	CachedTokens uint64 `msgpack:"cached_tokens" json:"cached_tokens"` // those found
}
