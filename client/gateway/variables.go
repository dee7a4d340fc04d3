package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"

	"reel.internal/reel/protocol"
)

// maxVariables bounds the JSON text of variables. Decoded they may have protocol.MaxVariableBytes.
const maxVariables = 4 * protocol.MaxVariableBytes

// variables are values for a chat template. Whole numbers stay whole, because templates print them.
type variables map[string]any

// UnmarshalJSON decodes an object.
func (v *variables) UnmarshalJSON(text []byte) error {
	if len(text) > maxVariables {
		return badField("chat_template_kwargs", fmt.Sprintf("want at most %d bytes", protocol.MaxVariableBytes))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return err
	}
	for name, value := range values {
		values[name] = whole(value)
	}
	*v = values
	return nil
}

// whole returns a decoded value with int64 or float64 in place of json.Number.
func whole(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // infinite where it is too large, which the protocol refuses
		return f
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = whole(v[name])
		}
	}
	return value
}

// withEffort returns the variables for a chat template with an effort of reasoning; empty: it is not given. Templates
// that know an effort read it from reasoning_effort; in others enable_thinking turns the reasoning on or off. Some, such
// as Gemma 4's, do not reason unless it is true.
func (v variables) withEffort(effort string) map[string]any {
	if effort == "" {
		return v
	}
	if v == nil {
		v = variables{}
	}
	v["reasoning_effort"] = effort
	if _, said := v["enable_thinking"]; !said || effort == "none" {
		v["enable_thinking"] = effort != "none"
	}
	return v
}
