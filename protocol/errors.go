package protocol

import "fmt"

// Error codes, stable across releases of one protocol version.
const (
	CodeBadFrame = "bad_frame" // length or structure out of bounds; the connection closes
	// CodeBadMessage: a field is missing, repeated or of the wrong type; the connection stays.
	CodeBadMessage         = "bad_message"
	CodeUnknownType        = "unknown_type"         // a type that this version does not know
	CodeHelloRequired      = "hello_required"       // a message other than hello or status before welcome
	CodeUnsupportedVersion = "unsupported_version"  // the connection closes
	CodeLoading            = "loading"              // the model is loading; say hello again later
	CodeBadRequest         = "bad_request"          // a field out of its bounds
	CodeNoChatTemplate     = "no_chat_template"     // messages for a model without a chat template
	CodeNoEmbeddings       = "no_embeddings"        // embed for a model that is not meant for embeddings
	CodeNoGeneration       = "no_generation"        // generate for a model that is
	CodeTemplateFailed     = "template_failed"      // the model's chat template is unreadable or failed
	CodeDuplicateID        = "duplicate_id"         // the id is in use on this connection
	CodePromptTooLong      = "prompt_too_long"      // more text or tokens than the context can hold
	CodeTooManyRequests    = "too_many_requests"    // on this connection
	CodeTooManyConnections = "too_many_connections" // the connection closes
	CodeBusy               = "busy"                 // the queue is full
	CodeDraining           = "draining"             // the generator is stopping and takes no new requests
	CodeShutdown           = "shutdown"             // the generator stopped before the request finished
	CodeSlowClient         = "slow_client"          // the client did not read; the connection closes
	CodeOverloaded         = "overloaded"           // no room for the frame; with an id the connection stays
	CodeDenied             = "denied"               // the peer may not use this generator; the connection closes
	CodeForbidden          = "forbidden"            // the user may use the generator, but may not do this
	CodeNotIdle            = "not_idle"             // a request runs, or has ended too recently, for sleep
	CodeNotActivated       = "not_activated"        // nothing would start the generator again after a sleep
	CodeDeviceFailed       = "device_failed"        // the generator ends; the connection closes
	// CodeModelChanged: the model's files were written to while in use; the generator ends.
	CodeModelChanged = "model_changed"
	CodeGPUAbsent    = "gpu_absent"    // there is no GPU, or no driver for it; the generator ends
	CodeGPUBusy      = "gpu_busy"      // other programs hold the GPU or its memory; the generator ends
	CodeOutOfMemory  = "out_of_memory" // the model does not fit the device's memory; the generator ends
	// CodeFormatUnavailable: this generator cannot follow formats.
	CodeFormatUnavailable = "format_unavailable"
	CodeBadFormat         = "bad_format"    // the format is wrong, or asks for what cannot be done
	CodeFormatFailed      = "format_failed" // the process that follows formats failed while the request ran
	CodeConfiguration     = "configuration" // a setting needs to be corrected; the generator ends
	CodeInternal          = "internal"
)

// closing lists the codes after which the generator closes the connection.
var closing = map[string]bool{
	CodeBadFrame: true, CodeUnsupportedVersion: true, CodeTooManyConnections: true,
	CodeSlowClient: true, CodeOverloaded: true, CodeDenied: true, CodeDeviceFailed: true,
}

// Closes reports whether the connection closes after e. CodeOverloaded with a readable id
// ends only that request.
func (e *Error) Closes() bool {
	return closing[e.Code] && (e.Code != CodeOverloaded || e.ID == nil)
}

// Error is the message that reports a failure, and the Go error on both sides.
type Error struct {
	Type string `msgpack:"type"`
	// ID names the request; nil if the error concerns the connection.
	ID      *uint64 `msgpack:"id,omitempty"`
	Code    string  `msgpack:"code"`
	Message string  `msgpack:"message"`
	// Hint says what to do next.
	Hint string `msgpack:"hint,omitempty"`
	// Progress of loading, 0 to 1, with CodeLoading.
	Progress *float64 `msgpack:"progress,omitempty"`
	// WaitsFor is the device whose memory the start waits for while other programs hold it, as in
	// Status.Device, with CodeLoading; or for which it has waited in vain, with CodeGPUBusy; empty: it does
	// not wait. It was added to version 1.
	WaitsFor string `msgpack:"waits_for,omitempty"`
}

// Error returns the message, with the hint in parentheses.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Hint)
}

// Errorf returns an Error with a code, a hint, and a message in fmt's form.
func Errorf(code, hint, format string, args ...any) *Error {
	return &Error{Type: TypeError, Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// For returns a copy of e with the request's id.
func (e *Error) For(id uint64) *Error {
	c := *e
	c.ID = &id
	return &c
}
