// Package format follows the formats of requests: it says which tokens a completion may draw so that it becomes a
// text of a form. The work is done by reel-format, a program over the library llguidance, which this package starts
// and speaks to over sockets and shared memory.
//
// That program is not trusted: a schema or an expression may take any time and memory in it. So it forks a process
// for each format, which ends alone, and this package checks what comes from it and waits for a bounded time.
package format

import (
	"encoding/json"
	"errors"
	"io/fs"

	"reel.internal/reel/protocol"
)

// Program is the file name of the program that follows formats. It lies beside the generator.
const Program = "reel-format"

// ErrUnavailable is the cause of an error of code format_unavailable.
var ErrUnavailable = errors.New("formats cannot be followed")

// kind is the kind of a format, as reel-format numbers them.
type kind uint32

const (
	schema kind = 1 + iota
	regex
	choice
	toolCalls
	answer // one of the formats of the wire, after reasoning
)

// object is the schema of format.json.
const object = `{"type": "object"}`

// textOf returns a format's kind and its text for reel-format.
func textOf(f protocol.Format) (kind, string, error) {
	switch {
	case f.JSON:
		return schema, object, nil
	case f.JSONSchema != "":
		return schema, f.JSONSchema, nil
	case f.Regex != "":
		return regex, f.Regex, nil
	}
	text, err := json.Marshal(f.Choice)
	return choice, string(text), err
}

// answerOf returns the text of a format after reasoning.
func answerOf(f protocol.Format, think string) (string, error) {
	k, text, err := textOf(f)
	if err != nil {
		return "", err
	}
	whole, err := json.Marshal(struct {
		Think json.RawMessage `json:"think"`
		Kind  kind            `json:"kind"`
		Text  string          `json:"text"`
	}{json.RawMessage(think), k, text})
	return string(whole), err
}

// refused returns the error of a format that cannot be followed.
func refused(cause string) error {
	return protocol.Errorf(protocol.CodeBadFormat, "correct the format, or leave that part out", "format: %s", cause)
}

// failed returns the error of a format that failed while its request ran.
func failed(cause string) error {
	return protocol.Errorf(protocol.CodeFormatFailed, "send the request again; if it fails again, simplify the format",
		"format: %s", cause)
}

// unavailable returns the error of a format that this generator cannot follow.
func unavailable(err error) error {
	hint := "send the request again in some seconds; if it fails again, ask the operator to look at the generator's log"
	if errors.Is(err, fs.ErrNotExist) {
		hint = "leave the format out, or ask the operator to install " + Program + " beside reel-generator: make builds " +
			"it where cargo 1.87 or newer is found, and the package reel has it"
	}
	return protocol.Errorf(protocol.CodeFormatUnavailable, hint, "%v: %v", ErrUnavailable, err)
}

// busy returns the error of a format for which there is no place.
func busy(formats int) error {
	return protocol.Errorf(protocol.CodeBusy, "wait for one to end and send it again",
		"requests with a format run or wait already: %d", formats)
}
