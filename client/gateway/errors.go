package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// apiError is an error as a client of HTTP sees it.
type apiError struct {
	status  int
	code    string // stable
	param   string // the field at fault, if it is one
	message string // the cause, and what to do next
	retry   int    // seconds until it may work; 0: it will not
}

func (e *apiError) Error() string { return e.message }

// refuse returns an error that a repetition does not change.
func refuse(status int, code, message string) *apiError {
	return &apiError{status: status, code: code, message: message}
}

// badField refuses a field of a request.
func badField(param, message string) *apiError {
	return &apiError{
		status: http.StatusBadRequest, code: "invalid_value", param: param, message: param + ": " + message}
}

// kind returns OpenAI's type of e.
func (e *apiError) kind() string {
	switch {
	case e.status == http.StatusUnauthorized:
		return "authentication_error"
	case e.status == http.StatusForbidden:
		return "permission_error"
	case e.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// statuses are the HTTP statuses of the generator's codes. Others are 500, and those of a second's
// retry may pass with time.
var statuses = map[string]struct{ status, retry int }{
	protocol.CodeBadRequest:         {status: http.StatusBadRequest},
	protocol.CodeBadMessage:         {status: http.StatusBadRequest},
	protocol.CodeBadFormat:          {status: http.StatusBadRequest},
	protocol.CodeFormatUnavailable:  {status: http.StatusBadRequest}, // clients would repeat a 5xx
	protocol.CodePromptTooLong:      {status: http.StatusBadRequest},
	protocol.CodeNoChatTemplate:     {status: http.StatusBadRequest},
	protocol.CodeTemplateFailed:     {status: http.StatusBadRequest},
	protocol.CodeNoEmbeddings:       {status: http.StatusBadRequest},
	protocol.CodeNoGeneration:       {status: http.StatusBadRequest},
	protocol.CodeTooManyRequests:    {http.StatusTooManyRequests, 1},
	protocol.CodeTooManyConnections: {http.StatusTooManyRequests, 1},
	protocol.CodeBusy:               {http.StatusTooManyRequests, 1},
	protocol.CodeOverloaded:         {http.StatusTooManyRequests, 1},
	protocol.CodeLoading:            {http.StatusServiceUnavailable, 2},
	protocol.CodeDraining:           {http.StatusServiceUnavailable, 2},
	protocol.CodeShutdown:           {http.StatusServiceUnavailable, 2},
	protocol.CodeDeviceFailed:       {http.StatusServiceUnavailable, 5},
	protocol.CodeModelChanged:       {http.StatusServiceUnavailable, 5},
	protocol.CodeGPUAbsent:          {http.StatusServiceUnavailable, 10},
	protocol.CodeGPUBusy:            {http.StatusServiceUnavailable, 10},
	protocol.CodeOutOfMemory:        {http.StatusServiceUnavailable, 10},
	protocol.CodeConfiguration:      {http.StatusServiceUnavailable, 10},
	protocol.CodeDenied:             {status: http.StatusBadGateway},
	protocol.CodeForbidden:          {status: http.StatusForbidden},
}

// asAPIError returns any error as a client of HTTP sees it. The words of package client's own errors name
// paths of this machine: they are for the log.
func asAPIError(err error) *apiError {
	var own *apiError
	var reported *client.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &reported):
		return fromGenerator(reported)
	case errors.Is(err, errShutdown):
		return &apiError{status: http.StatusServiceUnavailable, code: "shutdown", message: err.Error(), retry: 1}
	case errors.Is(err, client.ErrNoGenerator), errors.Is(err, client.ErrConnectionLost),
		errors.Is(err, client.ErrSleeping):
		return &apiError{status: http.StatusServiceUnavailable, code: "no_generator", retry: 2,
			message: "no generator serves this model now (ask again in a moment; the gateway's log has the reason)"}
	case errors.Is(err, client.ErrDenied), errors.Is(err, client.ErrConfig):
		return &apiError{status: http.StatusBadGateway, code: "denied",
			message: "the gateway may not use the generator's socket (ask the operator: the gateway's log has the reason)"}
	case errors.Is(err, client.ErrSlowLoop):
		return &apiError{
			status: http.StatusServiceUnavailable, code: "slow_client", message: "the answer was not read in time"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &apiError{status: http.StatusServiceUnavailable, code: "cancelled", message: "the request was cancelled"}
	}
	return &apiError{status: http.StatusInternalServerError, code: protocol.CodeInternal,
		message: "the gateway failed (ask the operator: the gateway's log has the reason)"}
}

// withoutPaths are the words for the generator's codes whose causes name paths of this machine.
var withoutPaths = map[string]string{
	protocol.CodeFormatUnavailable: "this generator cannot follow formats (leave the format out, or ask the operator: " +
		"reel status has the reason)",
	protocol.CodeModelChanged:  "the model's files have changed (ask the operator to restart the generator)",
	protocol.CodeConfiguration: "the generator cannot start with its settings (ask the operator: its log has the reason)",
}

// fromGenerator returns an error of the generator's.
func fromGenerator(e *client.Error) *apiError {
	to, known := statuses[e.Code]
	if !known {
		to.status = http.StatusInternalServerError
	}
	a := &apiError{status: to.status, retry: to.retry, code: e.Code, message: e.Error()}
	if e.Code == protocol.CodePromptTooLong {
		// OpenAI's code and words: LiteLLM, and the agents that use it, know the error by the words.
		a.code, a.message = "context_length_exceeded", "this model's maximum context length is exceeded: "+a.message
	}
	if e.Code == protocol.CodeNoChatTemplate {
		a.message = e.Message + " (use /v1/completions, or start reel-generator with --chat-template FILE)"
	}
	if words, ok := withoutPaths[e.Code]; ok {
		a.message = words
	}
	return a
}

// openAIError is an error in OpenAI's form.
type openAIError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	} `json:"error"`
}

// openAI returns e in OpenAI's form.
func (e *apiError) openAI() (o openAIError) {
	o.Error.Message, o.Error.Type, o.Error.Code = e.message, e.kind(), e.code
	if e.param != "" {
		o.Error.Param = &e.param
	}
	return o
}

// ollamaError is an error in Ollama's form.
type ollamaError struct {
	Error string `json:"error"`
}

// body returns e in the form of the API that a request speaks.
func (e *apiError) body(r *http.Request) any {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		return ollamaError{e.message}
	}
	if isAnthropic(r) {
		return e.anthropic()
	}
	return e.openAI()
}

// writeError answers a request with an error.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := asAPIError(err)
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.retry))
	}
	if e.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, e.status, e.body(r))
}

// writeJSON answers a request with a value. A failed write means that nobody reads the answer.
func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	writeDeadline(http.NewResponseController(w), usualTimes.stall)
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
}
