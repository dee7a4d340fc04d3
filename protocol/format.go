package protocol

// Format bounds a completion to texts of one form. Exactly one field is set.
type Format struct {
	// JSON: a JSON object.
	JSON bool `msgpack:"json,omitempty"`
	// JSONSchema is the JSON text of a JSON Schema; the completion is a value that it accepts.
	JSONSchema string `msgpack:"json_schema,omitempty"`
	// Regex is a regular expression that matches the whole completion.
	Regex string `msgpack:"regex,omitempty"`
	// Choice lists texts; the completion is one of them.
	Choice []string `msgpack:"choice,omitempty"`
}

// Bounds of a format.
const (
	MaxJSONBytes   = 256 << 10 // of a JSON text: tools, a schema, the arguments of a call
	MaxRegexBytes  = 64 << 10
	MaxChoices     = 1024
	MaxChoiceBytes = 64 << 10 // of all choices together
	MaxJSONDepth   = 128      // nested objects and lists of a JSON text
)

// checkFormat checks that a format has one form, and its sizes. Whether a schema can be followed
// is for the generator to find out.
func (g *Generate) checkFormat(Limits) *Error {
	f := g.Format
	if f == nil {
		return nil
	}
	given := 0
	for _, is := range []bool{f.JSON, f.JSONSchema != "", f.Regex != "", len(f.Choice) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return Errorf(CodeBadRequest, "give one of json: true, json_schema, regex and choice",
			"format has %d forms: it must have one", given)
	case g.IgnoreEOS:
		return Errorf(CodeBadRequest, "leave one of them out",
			"ignore_eos and format are given together: a format ends with the end of sequence")
	case len(f.Regex) > MaxRegexBytes:
		return tooLong("format.regex", len(f.Regex), MaxRegexBytes)
	case f.JSONSchema != "":
		return checkJSON("format.json_schema", f.JSONSchema)
	}
	return f.checkChoice()
}

func (f *Format) checkChoice() *Error {
	if len(f.Choice) > MaxChoices {
		return Errorf(CodeBadRequest, "leave some out", "format.choice has %d texts: it may have %d", len(f.Choice), MaxChoices)
	}
	bytes := 0
	for i, text := range f.Choice {
		if text == "" {
			return Errorf(CodeBadRequest, "leave it out", "format.choice[%d] is empty", i)
		}
		bytes += len(text)
	}
	if bytes > MaxChoiceBytes {
		return tooLong("format.choice", bytes, MaxChoiceBytes)
	}
	return nil
}

func tooLong(field string, bytes, most int) *Error {
	return Errorf(CodeBadRequest, "shorten it", "%s has %d bytes: it may have %d", field, bytes, most)
}

// States of the program that follows formats.
const (
	FormatsMissing = "missing" // it is not installed
	FormatsIdle    = "idle"    // it starts with the first format
	FormatsRunning = "running"
	FormatsFailed  = "failed" // it has ended, and is started again after a pause
)

// Formats describes the program that follows formats.
type Formats struct {
	State    string `msgpack:"state" json:"state"` // one of the Formats… values; empty: formats are refused
	Reason   string `msgpack:"reason,omitempty" json:"reason,omitempty"`
	Open     int    `msgpack:"open" json:"open"`         // formats, each with a process
	Restarts int    `msgpack:"restarts" json:"restarts"` // since the generator's start
}
