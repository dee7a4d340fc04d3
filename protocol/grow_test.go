package protocol

import (
	"runtime"
	"strings"
	"testing"
)

// TestRepliesGrowLittle: the largest reply with the shortest possible elements takes only a
// few times its size, so no list of short elements can fill a client's memory.
func TestRepliesGrowLittle(t *testing.T) {
	token := []string{"type", text("token"), "id", "\x01", "index", "\x00", "token", "\x00", "text", text("")}
	alternative := string(pairs("token", "\x00", "text", text(""), "logprob", "\x00"))
	use := string(pairs("kind", text(""), "planned", "\x00", "used", "\x00"))
	status, err := AppendFrame(nil, &Status{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body    []byte
		element string
	}{
		"alternatives": {pairs(append(token, "top", "\xdd")...), alternative},
		"memory":       {append(mapLonger(without(status[headerBytes:], "memory")), "\xa6memory\xdd"...), use},
		"ids":          {pairs("type", text("tokens"), "tokens", "\xdd"), "\x00"},
		"unknown list": {pairs(append(token, "x", "\xdd")...), "\x80"},
		"unknown maps": {pairs(append(token, "x", "\xdd")...), string(pairs("a", "\x90"))},
	} {
		n := min((MaxFrame-len(c.body)-4)/len(c.element), MaxElements)
		body := append(c.body, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		body = append(body, strings.Repeat(c.element, n)...)
		before := allocated()
		message, err := DecodeReply(body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := allocated() - before; took > 4*uint64(len(body))+1<<20 {
			t.Errorf("%s: %d KiB became %d", name, len(body)>>10, took>>10)
		}
		t.Logf("%s: %d KiB became %d", name, len(body)>>10, (allocated()-before)>>10)
		runtime.KeepAlive(message)
	}
}

// mapLonger makes the map in a body, of 16 to 65,534 pairs, declare one pair more.
func mapLonger(body []byte) []byte {
	longer := append([]byte(nil), body...)
	if longer[2]++; longer[2] == 0 {
		longer[1]++
	}
	return longer
}
