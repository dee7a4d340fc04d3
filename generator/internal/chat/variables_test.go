package chat

import (
	"errors"
	"math"
	"testing"
)

// A request may set a template's own variables, and nothing that others own.
func TestCheckVariables(t *testing.T) {
	if err := CheckVariables([]string{"enable_thinking", "date_string", "custom_tools", ""}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{
		"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "image_token",
		"additional_special_tokens", "range", "namespace", "raise_exception", "strftime_now", "tojson", "trim",
		"defined",
	} {
		if CheckVariables([]string{"a", name}) == nil {
			t.Errorf("%s may be set", name)
		}
	}
}

// A template sees a request's variables with their types.
func TestVariables(t *testing.T) {
	template := newTemplate(t, "{{ b }} {{ i + 1 }} {{ u }} {{ f }} {{ s }} {{ l[1].k[0] }} {{ m.z }} {{ bos_token }}")
	variables := map[string]any{
		"b": true, "i": int64(-3), "u": uint64(math.MaxInt64), "f": 2.0, "s": "é", "bos_token": "no",
		"l": []any{1.5, map[string]any{"k": []any{"x"}}}, "m": map[string]any{"z": int64(1)},
	}
	got, err := template.Render(Request{Variables: variables, MaxBytes: maxBytes})
	if want := `True -2 9223372036854775807 2.0 é x 1 <s>`; got.String() != want || err != nil {
		t.Errorf("%q, %v", got.String(), err)
	}
	_, err = template.Render(Request{Variables: map[string]any{"f": func() {}}, MaxBytes: maxBytes})
	if !errors.Is(err, ErrTemplate) {
		t.Error(err)
	}
}
