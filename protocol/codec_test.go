package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// code returns the code of a protocol error, or "".
func code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestWrongTypesAreRefused: the schema refuses values that msgpack would coerce. Each case
// also shows that msgpack alone accepts it.
func TestWrongTypesAreRefused(t *testing.T) {
	for _, c := range []struct{ field, value, want string }{
		{"id", "\xff", "id is a negative number: it must be a whole number of 0 and more"},
		{"id", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", "id is a negative number"},
		{"id", "\xc0", "id is missing"},
		{"seed", "\xd0\x80", "seed is a negative number"},
		{"max_tokens", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "max_tokens is a whole number"},
		{"prompt", "\xc4\x01a", "prompt is binary: it must be a string"},
		{"tokens", "\x91\xce\x80\x00\x00\x00", "tokens[0] is a whole number: it must be a whole number of 32 bits"},
		{"tokens", "\x91\xd3\x00\x00\x01\x00\x00\x00\x00\x00",
			"tokens[0] is a whole number: it must be a whole number of 32 bits"},
		{"tokens", "\x92\x01\xc0", "tokens[1] is nil"},
		{"temperature", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "temperature is a whole number: it must be a number"},
		{"stop", "\x91\xc4\x01a", "stop[0] is binary"},
	} {
		body := generateWith(c.field, c.value)
		_, err := DecodeRequest(body)
		if code(err) != CodeBadMessage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %x: %v, want %s", c.field, c.value, err, c.want)
		}
		if err := msgpack.Unmarshal(body, new(Generate)); err != nil {
			t.Errorf("%s %x: msgpack alone refuses it: %v; the case tests nothing", c.field, c.value, err)
		}
	}
}

// generateWith returns the body of a generate with one field set to a raw value.
func generateWith(field, value string) []byte {
	if field == "id" {
		return pairs("type", text("generate"), "id", value)
	}
	return pairs("type", text("generate"), "id", "\x07", field, value)
}

// TestOtherWrongTypes: values that msgpack refuses too, but without naming the field.
func TestOtherWrongTypes(t *testing.T) {
	for _, c := range []struct{ field, value string }{
		{"id", "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"}, {"id", text("1")}, {"id", "\x81\xa1a\x01"}, {"id", "\xc3"},
		{"max_tokens", "\xca\x3f\x80\x00\x00"}, {"max_tokens", text("1")},
		{"temperature", text("1")}, {"temperature", "\xc2"},
		{"echo", "\x01"}, {"ignore_eos", text("true")}, {"prompt", "\x01"}, {"prompt", "\x90"},
		{"tokens", text("abc")}, {"tokens", "\x80"}, {"tokens", "\x91\xa1a"}, {"tokens", "\xc4\x01a"},
		{"stop", text("END")}, {"stop", "\x91\x01"}, {"stop", "\x91\xc0"},
	} {
		_, err := DecodeRequest(generateWith(c.field, c.value))
		if code(err) != CodeBadMessage || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s %x: %v, want %s naming it", c.field, c.value, err, CodeBadMessage)
		}
	}
}

func TestAnyIntegerEncodingThatFits(t *testing.T) {
	for _, value := range []string{
		"\x05", "\xcc\x05", "\xcd\x00\x05", "\xce\x00\x00\x00\x05", "\xcf\x00\x00\x00\x00\x00\x00\x00\x05",
		"\xd0\x05", "\xd1\x00\x05", "\xd2\x00\x00\x00\x05", "\xd3\x00\x00\x00\x00\x00\x00\x00\x05",
	} {
		for _, field := range []string{"max_tokens", "seed", "temperature", "top_k"} {
			msg, err := DecodeRequest(generateWith(field, value))
			if err != nil {
				t.Errorf("%s %x: %v", field, value, err)
				continue
			}
			if got := fieldValue(msg.(*Generate), field); got != "5" {
				t.Errorf("%s %x = %s, want 5", field, value, got)
			}
		}
	}
}

// fieldValue prints a field for TestAnyIntegerEncodingThatFits.
func fieldValue(g *Generate, field string) string {
	p := g.Params()
	return fmt.Sprint(map[string]any{
		"max_tokens": p.MaxTokens, "seed": p.Seed, "temperature": p.Temperature, "top_k": p.TopK,
	}[field])
}

func TestDecodeRequestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		body []byte
		code string
		id   bool
		want string
	}{
		{"no map", []byte("\x90"), CodeBadFrame, false, "a list, not a map"},
		{"empty", nil, CodeBadFrame, false, "end inside"},
		{"no type", pairs("id", "\x07"), CodeBadMessage, true, "no type"},
		{"type of another type", pairs("type", "\x01", "id", "\x07"), CodeBadMessage, true, "no type"},
		{"unknown type", pairs("type", text("pause"), "id", "\x07"), CodeUnknownType, true, `"pause"`},
		{"a reply's type", pairs("type", text("token"), "id", "\x07"), CodeUnknownType, true, `"token"`},
		{"no version", pairs("type", text("hello")), CodeBadMessage, false, "version is missing"},
		{"no text", pairs("type", text("tokenize")), CodeBadMessage, false, "text is missing"},
		{"no id", pairs("type", text("cancel")), CodeBadMessage, false, "id is missing"},
		{"an id twice", pairs("type", text("cancel"), "id", "\x07", "id", "\x08"),
			CodeBadMessage, true, "id comes twice"},
		{"a type twice", pairs("type", text("status"), "type", text("hello")),
			CodeBadMessage, false, "type comes twice"},
		{"a type twice, then unknown", pairs("type", text("status"), "type", text("pause")),
			CodeBadMessage, false, "type comes twice"},
		{"an optional field twice", pairs("type", text("generate"), "id", "\x07", "seed", "\xc0", "seed", "\x01"),
			CodeBadMessage, true, "seed comes twice"},
		{"too many tokens", pairs("type", text("generate"), "id", "\x07", "tokens", list(MaxElements+1)),
			CodePromptTooLong, true, "262145 elements"},
		{"too many stops", pairs("type", text("generate"), "id", "\x07", "stop", list(MaxElements+1)),
			CodeBadRequest, true, "262145 elements"},
	} {
		_, err := DecodeRequest(c.body)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Message, c.want) || e.Hint == "" {
			t.Errorf("%s: %+v, want %s with %q and a hint", c.name, err, c.code, c.want)
			continue
		}
		if (e.ID != nil) != c.id || c.id && *e.ID != 7 {
			t.Errorf("%s: id %v, want one: %v", c.name, e.ID, c.id)
		}
	}
}

// list returns a list of n empty strings.
func list(n int) string {
	return string(appendArray(nil, n)) + strings.Repeat("\xa0", n)
}

func TestNilAndUnknownFields(t *testing.T) {
	for _, c := range []struct {
		body []byte
		want any
	}{
		{pairs("type", text("generate"), "id", "\x07", "prompt", text("a"),
			"tokens", "\xc0", "max_tokens", "\xc0", "stop", "\xc0", "echo", "\xc0"),
			&Generate{Type: TypeGenerate, ID: 7, Prompt: ptr("a")}},
		{pairs("later", nested(14), "type", text("hello"), "later", "\x81\xa1x\x01", "version", "\xcd\x00\x02"),
			&Hello{Type: TypeHello, Version: 2}},
	} {
		got, err := DecodeRequest(c.body)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%x: %+v, %v", c.body, got, err)
		}
	}
}

// TestDecodedMessageKeepsNothingOfTheBody: a message does not change when its body's
// buffer is reused.
func TestDecodedMessageKeepsNothingOfTheBody(t *testing.T) {
	for _, size := range []int{10, 2 * smallFrame} {
		long := strings.Repeat("a", size)
		body := pairs("type", text("tokenize"), "text", text(long))
		msg, err := DecodeRequest(body)
		if err != nil {
			t.Fatal(err)
		}
		clear(body)
		if msg.(*Tokenize).Text != long {
			t.Errorf("a text of %d bytes changed with the body", size)
		}
	}
}

// TestLargestPromptInMemory: decoding the largest prompt takes the frame, a string and
// msgpack's buffer, and all of it is freed afterwards.
func TestLargestPromptInMemory(t *testing.T) {
	body := pairs("type", text("generate"), "id", "\x07", "prompt", text(strings.Repeat("a", MaxFrame-40)))
	stream := frame(body)
	runtime.GC()
	start, before := live(), allocated()
	for range 4 {
		body, err := ReadFrame(bytes.NewReader(stream), MaxFrame, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRequest(body); err != nil {
			t.Fatal(err)
		}
	}
	if each := (allocated() - before) / 4; each > 9*MaxFrame/2 {
		t.Errorf("a prompt of %d bytes takes %d", MaxFrame, each)
	}
	runtime.GC()
	if now := live(); now > start+MaxFrame/2 {
		t.Errorf("%d bytes are not freed", now-start)
	}
	runtime.KeepAlive(stream)
}

// TestLongTextIsNotCopied: with known limits, a text that is too long is refused before it
// is copied.
func TestLongTextIsNotCopied(t *testing.T) {
	prompt := pairs("type", text("generate"), "id", "\x07", "prompt", text(strings.Repeat("a", 1<<20)))
	tokenize := pairs("type", text("tokenize"), "text", text(strings.Repeat("a", 1<<20)))
	before := allocated()
	_, err := testLimits.DecodeRequest(prompt)
	_, err2 := testLimits.DecodeRequest(tokenize)
	if took := allocated() - before; took > 1<<16 {
		t.Errorf("refusing it took %d bytes", took)
	}
	if code(err) != CodePromptTooLong || *err.(*Error).ID != 7 || code(err2) != CodePromptTooLong {
		t.Errorf("%v and %v, want %s", err, err2, CodePromptTooLong)
	}
	if _, err := DecodeRequest(prompt); err != nil {
		t.Errorf("without limits: %v", err)
	}
	within := pairs("type", text("tokenize"), "text", text(strings.Repeat("a", 1000)))
	if _, err := testLimits.DecodeRequest(within); err != nil {
		t.Errorf("a text at the bound: %v", err)
	}
}

// live returns the live bytes of the heap.
func live() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestFrameError(t *testing.T) {
	for err, want := range map[error]string{
		ErrFrameTooLarge: CodeBadFrame, ErrFrameEmpty: CodeBadFrame, ErrStructure: CodeBadFrame,
		ErrOverloaded: CodeOverloaded, errors.New("connection reset"): "",
	} {
		e := FrameError(fmt.Errorf("reading: %w", err))
		if e == nil && want == "" {
			continue
		}
		if e == nil || e.Code != want || !e.Closes() || e.Hint == "" {
			t.Errorf("%v: %+v, want %s, closing, with a hint", err, e, want)
		}
	}
}

// TestLongMessagesAreNotDecoded: a conversation that is too long is refused before it is
// copied, even if its list has elements of other types.
func TestLongMessagesAreNotDecoded(t *testing.T) {
	limits := Limits{PromptBytes: 10}
	for _, c := range []struct {
		messages []Message
		refused  bool
	}{
		{[]Message{sized("user", 5), sized("assistant", 5)}, false},
		{[]Message{sized("user", 5), sized("assistant", 6)}, true},
		{[]Message{{Role: "a role of more bytes"}}, false},
	} {
		frame, err := AppendFrame(nil, &Generate{ID: 3, Messages: c.messages})
		if err != nil {
			t.Fatal(err)
		}
		_, err = limits.DecodeRequest(frame[headerBytes:])
		var e *Error
		refused := errors.As(err, &e)
		if refused != c.refused || refused && (e.Code != CodePromptTooLong || *e.ID != 3) {
			t.Errorf("%v: %v", c.messages, err)
		}
	}
	message := string(pairs("content", "\x01", "x", "\x92\x01\x02", "content", text("12345678901")))
	odd := pairs("type", text("generate"), "id", "\x01", "messages", "\x93\x01"+message+text("y"))
	var e *Error
	if _, err := limits.DecodeRequest(odd); !errors.As(err, &e) || e.Code != CodeBadMessage {
		t.Errorf("odd elements: %v", err)
	}
}

// TestPeekID: PeekID finds the id in any beginning of a request that contains it, and
// returns nil otherwise.
func TestPeekID(t *testing.T) {
	prompt, seed := strings.Repeat("long ", 3000), uint64(5)
	messages := []Message{{Role: "user", Content: prompt}}
	for _, g := range []*Generate{
		{ID: 1 << 40, Prompt: &prompt, Seed: &seed},
		{ID: 7, Tokens: make([]int32, 5000)},
		{ID: 200, Messages: messages, Stop: []string{"id"}},
	} {
		sent, err := AppendFrame(nil, g)
		if err != nil {
			t.Fatal(err)
		}
		body, found := sent[headerBytes:], 0
		for n := range min(len(body), smallFrame) {
			if id := PeekID(body[:n]); id != nil {
				found++
				if *id != g.ID {
					t.Fatalf("%d bytes: id %d, want %d", n, *id, g.ID)
				}
			}
		}
		if found == 0 {
			t.Errorf("id %d was never found", g.ID)
		}
	}
	for name, head := range map[string]string{
		"a list":             "\x91\xa2id\x01",
		"a text as id":       "\x81\xa2id\xa11",
		"an id inside":       "\x81\xa1x\x81\xa2id\x01",
		"no value":           "\x82\xa2id",
		"after 4 G elements": "\x82\xa1x\xdd\xff\xff\xff\xff\xa2id\x01",
		"after a long text":  "\x82\xa1x\xdb\xff\xff\xff\xff\xa2id\x01",
		"a negative id":      "\x81\xa2id\xff",
		"nothing":            "",
	} {
		if id := PeekID([]byte(head)); id != nil {
			t.Errorf("%s: id %d", name, *id)
		}
	}
	if id := PeekID([]byte("\x82\xa1x\x92\x81\xa1y\xc0\xa1z\xa2id\x09")); id == nil || *id != 9 {
		t.Errorf("after a list of maps: %v", id)
	}
}
