package protocol

import (
	"bytes"
	"strings"
	"testing"
)

// TestLargeFramesAreMapped: a large frame with a budget takes nothing of Go's heap. Without
// a budget, as in a client, it is on the heap.
func TestLargeFramesAreMapped(t *testing.T) {
	body := frame(make([]byte, MaxFrame))
	for _, c := range []struct {
		budget Allowance
		heap   bool
	}{{&allowance{limit: MaxFrame}, false}, {nil, true}} {
		f := FrameReader{R: bytes.NewReader(body), Budget: c.budget}
		before := allocated()
		if _, err := f.Next(); err != nil {
			t.Fatal(err)
		}
		if onHeap := allocated()-before >= MaxFrame; onHeap != c.heap {
			t.Errorf("budget %t: on the heap is %t", c.budget != nil, onHeap)
		}
		f.Release()
		if f.mapped != nil || f.buf != nil && !c.heap {
			t.Errorf("budget %t: memory is kept", c.budget != nil)
		}
	}
}

// TestMappedMemoryOfACutFrameIsFreed: a connection that ends in the first bytes of a large
// frame holds nothing.
func TestMappedMemoryOfACutFrameIsFreed(t *testing.T) {
	budget := &allowance{limit: MaxFrame}
	f := FrameReader{R: bytes.NewReader(frame(make([]byte, MaxFrame))[:smallFrame+100]), Budget: budget}
	if _, err := f.Next(); err == nil || f.mapped == nil {
		t.Fatalf("%v, mapped %t", err, f.mapped != nil)
	}
	if f.Release(); f.mapped != nil || budget.used != 0 {
		t.Errorf("mapped %t, %d bytes held", f.mapped != nil, budget.used)
	}
}

// TestDecodedMessagesOutliveTheFrame: a decoded message remains valid when the frame's
// memory is unmapped; otherwise reading it would end the process.
func TestDecodedMessagesOutliveTheFrame(t *testing.T) {
	prompt := strings.Repeat("prompt ", 100_000)
	sent, err := AppendFrame(nil, &Generate{ID: 1, Prompt: &prompt, Stop: []string{"stop"}})
	if err != nil {
		t.Fatal(err)
	}
	unknown := "\x82\xa4type\xdb\x00\x0a\xae\x60" + strings.Repeat("x", 700_000) + "\xa2id\x01"
	f := FrameReader{R: bytes.NewReader(append(sent, frame([]byte(unknown))...)), Budget: &allowance{limit: MaxFrame}}
	body, err := f.Next()
	if err != nil || f.mapped == nil {
		t.Fatalf("%v, mapped %t", err, f.mapped != nil)
	}
	msg, err := DecodeRequest(body)
	f.Release()
	if g, ok := msg.(*Generate); err != nil || !ok || *g.Prompt != prompt || g.Stop[0] != "stop" {
		t.Errorf("%T, %v", msg, err)
	}
	if body, err = f.Next(); err != nil {
		t.Fatal(err)
	}
	_, err = DecodeRequest(body)
	f.Release()
	if e, ok := err.(*Error); !ok || e.Code != CodeUnknownType || !strings.Contains(e.Error(), "xxx") {
		t.Errorf("%.100v", err)
	}
}
