package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"reel.internal/reel/protocol"
)

const (
	// maxBody bounds a request's body: what is longer does not fit a frame.
	maxBody = protocol.MaxFrame
	// smallBody is what always finds room; connections bound the memory of all of that.
	smallBody = 64 << 10
	// maxBodies bounds the bytes of all larger bodies, and of what they become.
	maxBodies = 256 << 20
	// listBytes and textBytes are what an object or list, and a text, take in memory beside their own bytes.
	listBytes, textBytes = 256, 32
)

// errBodies refuses a large body while others take its room.
var errBodies = &apiError{status: http.StatusTooManyRequests, code: "too_many_bytes", retry: 1,
	message: "too many large requests are being served (ask again in a moment)"}

// readJSON decodes a request's body into value. Unknown fields are ignored. The memory of a large
// body is counted until release is called.
func (g *Gateway) readJSON(w http.ResponseWriter, r *http.Request, value any) (release func(), err error) {
	size := r.ContentLength
	if size > maxBody && strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		// The client waits with the body until a read asks for it. Another one is writing it, and might lose the
		// answer if its body stayed unread.
		w.Header().Set("Connection", "close")
		return func() {}, unread(&http.MaxBytesError{Limit: maxBody})
	}
	if size < 0 || size > maxBody {
		size = maxBody
	}
	reading, ok := g.room(r, size)
	if !ok {
		return func() {}, errBodies
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	reading()
	if err != nil {
		w.Header().Set("Connection", "close") // instead of reading on
		return func() {}, unread(err)
	}
	size = weight(text)
	if size > g.bodies.total/2 {
		return func() {}, refuse(http.StatusRequestEntityTooLarge, "request_too_large", "the request has too many values")
	}
	if release, ok = g.room(r, size); !ok {
		return func() {}, errBodies
	}
	return release, decode(text, value)
}

// room takes the memory of a large body from its user's share. release gives it back.
func (g *Gateway) room(r *http.Request, size int64) (release func(), ok bool) {
	if size <= smallBody {
		return func() {}, true
	}
	user := callerOf(r)
	return func() { g.bodies.give(user, size) }, g.bodies.take(user, size)
}

// weight returns about how many bytes a JSON text and its values take: [{},{},… becomes a hundred times
// its length.
func weight(text []byte) int64 {
	n, quoted := len(text), false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			n, quoted = n+textBytes/2, !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == '{' || c == '['):
			n += listBytes
		}
	}
	return int64(n)
}

// unread returns the error for a body that could not be read.
func unread(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return refuse(http.StatusRequestEntityTooLarge, "request_too_large",
			fmt.Sprintf("the request has more than %d bytes", large.Limit))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // its words name addresses, or a path of this machine
		return refuse(http.StatusRequestTimeout, "request_timeout", "the request's body did not arrive in time")
	}
	return refuse(http.StatusBadRequest, "unread_body", "the request's body did not arrive as a whole: "+err.Error())
}

// decode decodes one JSON value. It refuses a name that comes twice in an object: which one is meant, nobody knows.
func decode(text []byte, value any) error {
	err := json.Unmarshal(text, value)
	var wrong *json.UnmarshalTypeError
	var own *apiError
	switch {
	case err == nil:
		if where, is := repeatedName(text); is {
			return badField(where, "it comes twice in one object (leave one out)")
		}
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &wrong) && wrong.Field != "":
		name := wrong.Field
		for _, of := range []string{"anthropicRequest.", "fields.", "toolFields."} { // Go names the struct in which the field is
			name = strings.TrimPrefix(name, of)
		}
		return &apiError{status: http.StatusBadRequest, code: "invalid_type", param: name,
			message: fmt.Sprintf("%s: a value of type %s has no meaning there", name, wrong.Value)}
	}
	reason := err.Error()
	if wrong != nil {
		reason = "it is of type " + wrong.Value // Go names its own type besides
	}
	return refuse(http.StatusBadRequest, "invalid_json", "the request's body is no JSON object: "+reason)
}
