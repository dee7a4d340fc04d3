package protocol

import (
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/frames.txt anew")

// TestMain runs a child of TestHostileInputWithoutScan if the environment asks for one.
func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		hostileChild(name)
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// unhex decodes hex that contains spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// text returns s as a msgpack string.
func text(s string) string { return string(appendString(nil, s)) }

// pairs returns a map of keys and raw values.
func pairs(kv ...string) []byte {
	n := len(kv) / 2
	b := []byte{0x80 | byte(n)}
	if n > 15 {
		b = []byte{0xde, 0, byte(n)}
	}
	for i := 0; i < len(kv); i += 2 {
		b = append(appendString(b, kv[i]), kv[i+1]...)
	}
	return b
}

// without returns a message's body without one of its fields.
func without(body []byte, field string) []byte {
	var kv []string
	w := &walker{body}
	for range w.next().n {
		key := string(w.str(w.next()))
		value := w.b
		w.skip()
		if key != field {
			kv = append(kv, key, string(value[:len(value)-len(w.b)]))
		}
	}
	return pairs(kv...)
}

func ptr[T any](v T) *T { return &v }
