package protocol

import "testing"

// TestParseDraft: a text is a word or a number within its bounds, and means how many tokens a step may guess.
func TestParseDraft(t *testing.T) {
	for text, want := range map[string]int{"on": 7, "off": 0, "0": 0, "3": 3, "7": 7, "": -1, "8": -1, "-1": -1, "3.0": -1,
		"lookup": -1, "99999999999999999999": -1} {
		d, e := ParseDraft(text)
		switch {
		case want < 0 && (e == nil || e.Code != CodeBadRequest):
			t.Errorf("%q: %v, want %s", text, e, CodeBadRequest)
		case want >= 0 && (e != nil || d.Most() != want || d.String() != text):
			t.Errorf("%q: %v, %v, at most %d, want %d", text, d, e, d.Most(), want)
		}
	}
	if got := (*Draft)(nil).Most(); got != MaxDrafts {
		t.Errorf("left out it means %d", got)
	}
}

// TestDecodeDraft: a word that the protocol does not know is a fault of the field, not of the message.
func TestDecodeDraft(t *testing.T) {
	for value, want := range map[string]string{"\xa2on": "", "\x07": "", "\xcf\x00\x00\x00\x00\x00\x00\x00\x07": "",
		"\xc0": "", "\xa0": CodeBadRequest, "\xa1x": CodeBadRequest, "\x08": CodeBadRequest, "\xff": CodeBadRequest,
		"\xd3\x80\x00\x00\x00\x00\x00\x00\x00": CodeBadRequest,
		"\xcf\xff\xff\xff\xff\xff\xff\xff\xff": CodeBadMessage,
		"\xc3":                                 CodeBadMessage, "\xc4\x01a": CodeBadMessage, "\x91\x01": CodeBadMessage, "\x80": CodeBadMessage,
		"\xcb\x40\x08\x00\x00\x00\x00\x00\x00": CodeBadMessage} {
		message, err := DecodeRequest(pairs("type", text("generate"), "id", "\x01", "prompt", text("a"), "draft", value))
		if g, ok := message.(*Generate); ok {
			if e := g.Validate(goldenLimits); e != nil {
				err = e
			}
		}
		if code(err) != want {
			t.Errorf("% x: %v, want %q", value, err, want)
		}
	}
}
