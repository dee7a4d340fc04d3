package main

import (
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// mistake is a usage error with its own hint.
type mistake struct{ message, hint string }

func (m mistake) Error() string { return m.message }

// elsewhere maps the commands of other programs that people try first to the command to
// use here. %s stands for the word that follows, quoted for a shell, or for example.
var elsewhere = map[string]struct{ why, use, example string }{
	"list":    {"reel has no command list: a generator serves one model", "reel status", ""},
	"ps":      {"reel has no command ps: a generator serves one model", "reel status", ""},
	"run":     {"reel has no command run", "reel-generator --model %s\nthen, in another terminal: reel chat", "DIR"},
	"serve":   {"reel has no command serve", "reel-generator", ""},
	"pull":    {"reel has no command pull", "hf download %s\nthen: reel-generator --model %s", "ORG/NAME"},
	"version": {"reel version takes no words", "reel version", ""},
}

// checkWords refuses words that look like a command but are none: those of elsewhere, alone
// or with one more word, and, where a person types, one word that is nearly a command.
func checkWords(cmd *cobra.Command, words []string) error {
	if len(words) == 0 || len(words) > 2 || cmd.ArgsLenAtDash() >= 0 {
		return nil
	}
	asPrompt := "to send it as a prompt: reel -- " + quoteAll(words)
	if other, known := elsewhere[words[0]]; known {
		next := other.example
		if len(words) == 2 {
			next = quote(words[1])
		}
		return mistake{other.why, "use: " + strings.ReplaceAll(other.use, "%s", next) + "\n" + asPrompt}
	}
	if len(words) == 2 || !isTerminal(os.Stdin) || !stdout().terminal {
		return nil
	}
	if near := nearMisses(cmd.Root(), words[0]); len(near) > 0 {
		meant := "did you mean: reel " + strings.Join(near, ", reel ")
		return mistake{"reel has no command " + words[0], meant + "\n" + asPrompt}
	}
	return nil
}

// nearMisses returns the subcommands that word may be meant for: they begin with the same
// letter, and have the same letters in another order or differ as cobra suggests, by one
// letter, or by two from words of six letters on.
func nearMisses(root *cobra.Command, word string) (near []string) {
	word = strings.ToLower(word)
	if len(word) < 3 || strings.IndexFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) >= 0 {
		return nil
	}
	root.SuggestionsMinimumDistance = 1
	if len(word) >= 6 {
		root.SuggestionsMinimumDistance = 2
	}
	suggested := root.SuggestionsFor(word)
	for _, c := range root.Commands() {
		name := c.Name()
		if name[0] == word[0] && (slices.Contains(suggested, name) || letters(name) == letters(word)) {
			near = append(near, name)
		}
	}
	return near
}

// letters returns the letters of word in order.
func letters(word string) string {
	sorted := []rune(word)
	slices.Sort(sorted)
	return string(sorted)
}

// quoteAll quotes words for a POSIX shell.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
