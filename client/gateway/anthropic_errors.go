package gateway

import "net/http"

// anthropicError is an error in Anthropic's form. It is also the last event of a stream that fails.
type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func (e anthropicError) event() string { return e.Type }

// anthropicKinds are Anthropic's types of errors with a status. Of others, those of the client are
// invalid_request_error and those of the server api_error.
var anthropicKinds = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// anthropic returns e in Anthropic's form.
func (e *apiError) anthropic() anthropicError {
	kind, known := anthropicKinds[e.status]
	switch {
	case known:
	case e.status >= http.StatusInternalServerError:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	a := anthropicError{Type: "error"}
	a.Error.Type, a.Error.Message = kind, e.message
	if e.code == "context_length_exceeded" {
		// Anthropic's words: agents that use the API know by them that they have to shorten a conversation.
		a.Error.Message = "prompt is too long: " + e.message
	}
	return a
}
