package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// stream writes one answer in pieces, as server-sent events or as lines of JSON. Each call of its
// methods makes one write. They may be called from several goroutines at once.
type stream struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	sse  bool
	ping time.Duration // between two comments in a silent stream of events
	wait time.Duration // for a write that the client does not read
	sign string        // of life, as a comment or event
	// failure returns the last events of a stream that fails; nil: the error in the form of the API.
	failure func(*apiError) []any

	mu      sync.Mutex
	begun   bool // the status has been sent
	ended   bool
	silence *time.Timer
	buffer  bytes.Buffer
	encoder *json.Encoder // to buffer
}

// errNoReader means that the client reads nothing any more.
var errNoReader = errors.New("the client does not read its answer")

// newStream returns a stream of server-sent events, or of lines of JSON. Until the first write or
// ping an error can still be answered with its status. end must be called.
func (g *Gateway) newStream(w http.ResponseWriter, sse bool) *stream {
	s := &stream{w: w, c: http.NewResponseController(w), sse: sse, ping: g.o.Ping, wait: g.times.stall,
		sign: ": ping\n\n"}
	s.encoder = json.NewEncoder(&s.buffer)
	s.encoder.SetEscapeHTML(false)
	if sse {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.silence = time.AfterFunc(s.ping, s.comment)
	}
	return s
}

// send writes values, each as an event or a line, with one write.
func (s *stream) send(values ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffer.Reset()
	for _, v := range values {
		if err := s.add(v); err != nil {
			return err
		}
	}
	return s.write(s.buffer.Bytes())
}

// named is an event that has its name in a line of its own.
type named interface{ event() string }

// add adds a value to the buffer.
func (s *stream) add(v any) error {
	if s.sse {
		if n, ok := v.(named); ok {
			s.buffer.WriteString("event: " + n.event() + "\n")
		}
		s.buffer.WriteString("data: ")
	}
	if err := s.encoder.Encode(v); err != nil { // ends with a newline
		return err
	}
	if s.sse {
		s.buffer.WriteByte('\n')
	}
	return nil
}

// text writes text as it is.
func (s *stream) text(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write([]byte(text))
}

// comment shows that the stream lives, and finds out whether its reader does.
func (s *stream) comment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.write([]byte(s.sign)) // a reader that is gone ends the request's context
}

// signs sets the sign of life.
func (s *stream) signs(sign string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sign = sign
}

// write writes and flushes b within s.wait. s.mu is held.
func (s *stream) write(b []byte) error {
	if s.ended {
		return errNoReader
	}
	if !s.begun {
		s.begin()
	}
	if s.silence != nil {
		s.silence.Reset(s.ping)
	}
	writeDeadline(s.c, s.wait)
	if _, err := s.w.Write(b); err != nil {
		return errNoReader
	}
	if err := s.c.Flush(); err != nil {
		return errNoReader
	}
	return nil
}

// begin sends the status and headers.
func (s *stream) begin() {
	kind := "application/x-ndjson"
	if s.sse {
		kind = "text/event-stream"
	}
	s.w.Header().Set("Content-Type", kind)
	s.w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	s.w.WriteHeader(http.StatusOK)
	s.begun = true
}

// end stops the comments. The stream is not used after that.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.silence != nil {
		s.silence.Stop()
	}
}

// fail answers with an error: with its status before the first write, else as the last event.
func (s *stream) fail(r *http.Request, err error) {
	s.mu.Lock()
	begun := s.begun
	s.ended = !begun // a comment that comes now must not send the status 200
	s.mu.Unlock()
	switch e := asAPIError(err); {
	case begun && s.failure != nil:
		_ = s.send(s.failure(e)...)
		return
	case begun:
		_ = s.send(e.body(r))
		return
	}
	writeError(s.w, r, err)
}
