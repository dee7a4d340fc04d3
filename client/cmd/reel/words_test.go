package main

import (
	"strings"
	"testing"
)

// TestNearMisses: typing mistakes are near misses, usual one-word prompts are not.
func TestNearMisses(t *testing.T) {
	for word, want := range map[string]string{
		"statsu": "status", "stats": "status", "satus": "status", "Status": "status", "stat": "status",
		"caht": "chat", "chats": "chat", "tpo": "top", "docter": "doctor", "tokenise": "tokenize",
		"hepl":  "help",
		"hello": "", "Hey": "", "hi": "", "what": "", "that": "", "stop": "", "Why": "", "to": "", "ROMEO:": "",
		"top!": "", "once": "", "summarise": "", "translate": "", "test": "", "yes": "", "count": "", "tell": "",
	} {
		root := (&app{}).command()
		root.InitDefaultHelpCmd()
		if got := strings.Join(nearMisses(root, word), " "); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
