package fakegen

import (
	"reel.internal/reel/protocol"
)

// EmbedWidth is the number of elements of a vector.
const EmbedWidth = 4

var embeddings = protocol.Embeddings{Dimensions: EmbedWidth, Least: 2, Normalized: true, Prompts: []string{"query"}}

// embed answers with a vector: half the number of the text's bytes, then the number of its tokens, then 0. One with
// another number of dimensions has so many elements. A request that a generator refuses is refused; so is every one
// with Script.Error, and with the ending Hang none is answered before it is cancelled.
func (s *session) embed(m *protocol.Embed) {
	if e := s.refused(m); e != nil {
		s.send(e)
		return
	}
	if s.g.Ending == Hang {
		cancelled := make(chan struct{}, 1)
		s.mu.Lock()
		s.cancels[m.ID] = cancelled
		s.mu.Unlock()
		go func() {
			select {
			case <-cancelled:
				s.send(&protocol.Done{ID: m.ID, FinishReason: protocol.FinishCancelled})
			case <-s.gone:
			}
		}()
		return
	}
	v := make(protocol.Vector, EmbedWidth)
	n := len(m.Tokens)
	if m.Prompt != nil {
		v[0], n = float32(len(*m.Prompt))/2, len(*m.Prompt)+1
	}
	v[1] = float32(n)
	if m.Dimensions != nil {
		v = v[:*m.Dimensions]
	}
	s.send(&protocol.Embedding{ID: m.ID, Vector: v, Usage: protocol.Usage{PromptTokens: n, CachedTokens: s.g.Cached}})
}

// refused returns the error that a request for an embedding gets, or nil.
func (s *session) refused(m *protocol.Embed) *protocol.Error {
	switch e := m.Validate(limits, embeddings); {
	case s.g.Error != nil:
		return s.g.Error.For(m.ID)
	case !s.g.Embeds:
		return protocol.Errorf(protocol.CodeNoEmbeddings, "serve a model that is",
			"fake is not meant for embeddings").For(m.ID)
	case e != nil:
		return e
	}
	return nil
}
