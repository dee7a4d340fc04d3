//go:build linux && formats

package e2e

import (
	"fmt"
	"testing"
)

// formattedRequests returns the i-th of requests of each kind, with formats and required calls of tools too.
func formattedRequests(i int) []streamed {
	const chat = "/v1/chat/completions"
	const tools = `[{"type": "function", "function": {"name": "fly", "parameters": {"type": "object", "properties":
		{"to": {"enum": ["Rome", "Verona"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
		"required": ["to", "n"], "additionalProperties": false}}}]`
	return append(plainRequests(i),
		streamed{chat, fmt.Sprintf(`{"messages": [{"role": "user", "content": "JULIET:\n"}], "max_tokens": 120, "seed": %d,
			"stream": true, "response_format": {"type": "json_schema", "json_schema": {"schema": %s}}}`, i, person)},
		streamed{chat, fmt.Sprintf(`{"messages": [{"role": "user", "content": "ROMEO:\n"}], "max_tokens": 120, "seed": %d,
			"stream": true, "tools": %s, "tool_choice": "required", "parallel_tool_calls": false}`, i, tools)},
	)
}

// Every stream ends with the text that it gives undisturbed, with formats and tools too. REEL_KILLS=200 is the full
// test (make survive).
func TestFormatsSurviveKilledGenerators(t *testing.T) {
	serveFormats(t) // puts reel-format beside the generator
	survive(t, kills(t, 10), formattedRequests, 64)
}
