package chat

import (
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// A template that finds results in the message with the calls gets them there, with the text that follows. Others get
// messages of role tool.
func TestFoldedResponses(t *testing.T) {
	const folds = `{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls %}[{{ c.function.name }}]{% endfor %}` +
		`{% for r in m.tool_responses %}{ {{- r.name | default('?') }}={{ r.response }}}{% endfor %}{{ m.content }}{% endfor %}`
	calls := []protocol.ToolCall{{ID: "1", Name: "get", Arguments: "{}"}, {ID: "2", Name: "put", Arguments: "{}"}}
	messages := []protocol.Message{
		{Role: "user", Content: "a"}, {Role: "assistant", ToolCalls: calls}, {Role: "tool", Content: "two", ToolCallID: "2"},
		{Role: "tool", Content: "one", ToolCallID: "1", Name: "other"}, {Role: "assistant", Content: "So."},
		{Role: "user", Content: "b"}, {Role: "assistant", Content: "I look.", ToolCalls: calls[:1]}, {Role: "tool", Content: "x"},
		{Role: "assistant", Content: "No."}, {Role: "assistant", ToolCalls: calls[:1]}, {Role: "tool", Content: "y", ToolCallID: "1"},
		{Role: "assistant", ToolCalls: calls[1:]}, {Role: "user", Content: "c"}, {Role: "tool", Content: "z"},
	}
	const want = "<user>a<assistant>[get][put]{put=two}{get=one}So.<user>b<assistant>[get]{?=x}I look.<assistant>No." +
		"<assistant>[get]{get=y}<assistant>[put]<user>c<tool>z"
	got := rendered(t, Source{Template: folds}, Request{Messages: messages})
	if got.String() != want {
		t.Errorf("%s\nwants\n%s", got, want)
	}
	for _, p := range got {
		if !p.Data && (p.Text == "two" || p.Text == "get") {
			t.Errorf("%q is trusted", p.Text)
		}
	}
	const other = "<user>a<assistant>[get][put]<tool>two<tool>one<assistant>So."
	if got := rendered(t, Source{Template: folds + "{# tool_call_id #}"}, Request{Messages: messages[:5]}); got.String() != other {
		t.Errorf("%s\nwants\n%s", got, other)
	}
	if c, err := compile(Source{Template: folds}); err != nil {
		t.Error(err)
	} else if _, err := c.render(Request{Messages: []protocol.Message{{ToolCalls: []protocol.ToolCall{{Arguments: "{"}}}}}, time.Now()); err == nil {
		t.Error("broken arguments are rendered")
	}
}
