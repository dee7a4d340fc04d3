// Package plays is a generator for tests of the gateway: the first word of a prompt, or of a
// conversation's last message, chooses what it answers.
package plays

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// Script returns a script for [fakegen.New], of a model that has a chat template and calls tools.
func Script(model string) fakegen.Script {
	return fakegen.Script{Model: model, Chat: true, Tools: true, Context: 1 << 17, Cached: 2, Answer: answer}
}

// plays are the answers by the first word of what was asked; rest is what follows it.
var plays = map[string]func(m *protocol.Generate, rest string) fakegen.Answer{
	"text":  func(*protocol.Generate, string) fakegen.Answer { return say(words(Greeting)) },
	"think": think,
	"call":  func(m *protocol.Generate, _ string) fakegen.Answer { return call(m, weather("Zürich")) },
	"calls": func(m *protocol.Generate, _ string) fakegen.Answer {
		return call(m, weather("Zürich"), weather("Bern"))
	},
	"person":  func(*protocol.Generate, string) fakegen.Answer { return say(words(Person)) },
	"refuse":  func(_ *protocol.Generate, code string) fakegen.Answer { return fail(code, "") },
	"break":   func(_ *protocol.Generate, code string) fakegen.Answer { return fail(code, "these words come first") },
	"drop":    func(*protocol.Generate, string) fakegen.Answer { return fakegen.Answer{Ending: fakegen.Drop} },
	"silent":  func(*protocol.Generate, string) fakegen.Answer { return fakegen.Answer{Ending: fakegen.Hang} },
	"slow":    slow,
	"endless": endless,
	"clock":   clock,
	"seed":    seeded,
	"request": request,
}

// Greeting is what "text" answers, and Person what "person" does.
const (
	Greeting = "Grüße aus Zürich: 日本, 🎬 and \"quotes\" \\ <b>."
	Person   = `{"name": "Ada", "age": 36}`
)

// answer plays what m asks for. A tool's result, and a text that names no play, are repeated.
func answer(m *protocol.Generate) fakegen.Answer {
	text := Asked(m)
	name, rest, _ := strings.Cut(text, " ")
	n := len(m.Messages)
	if play, ok := plays[name]; ok && (n == 0 || m.Messages[n-1].Role != "tool") {
		return play(m, rest)
	}
	return say(words(text))
}

// Asked returns the prompt of m, or the content of its last message.
func Asked(m *protocol.Generate) string {
	if n := len(m.Messages); n > 0 {
		return m.Messages[n-1].Content
	}
	if m.Prompt != nil {
		return *m.Prompt
	}
	return fmt.Sprint(m.Tokens)
}

// words returns a token for each word of text.
func words(text string) iter.Seq[fakegen.Piece] {
	return func(yield func(fakegen.Piece) bool) {
		for word := range strings.SplitAfterSeq(text, " ") {
			if !yield(fakegen.Piece{Text: word}) {
				return
			}
		}
	}
}

// say answers with pieces at once.
func say(tokens iter.Seq[fakegen.Piece]) fakegen.Answer { return fakegen.Answer{Tokens: tokens} }

// fail fails with a code after some words.
func fail(code, first string) fakegen.Answer {
	a := fakegen.Answer{Ending: fakegen.Fail, Error: protocol.Errorf(code, "do something else", "as it was asked")}
	if first != "" {
		a.Tokens, a.Pace = words(first), time.Millisecond
	}
	return a
}

// think reasons before it answers.
func think(m *protocol.Generate, _ string) fakegen.Answer {
	if m.Reasoning == nil || *m.Reasoning != protocol.ReasoningApart {
		return say(words("<think>two and two</think>four"))
	}
	return say(func(yield func(fakegen.Piece) bool) {
		_ = yield(fakegen.Piece{Reasoning: "two "}) && yield(fakegen.Piece{Reasoning: "and two"}) &&
			yield(fakegen.Piece{Text: "four"})
	})
}

// weather returns the arguments of a call of get_weather.
func weather(city string) string { return fmt.Sprintf(`{"city": "%s"}`, city) }

// call calls get_weather with each of arguments, in pieces, if a tool may be called.
func call(m *protocol.Generate, arguments ...string) fakegen.Answer {
	if m.Tools == nil || m.ToolChoice != nil && *m.ToolChoice == protocol.ToolNone {
		return say(words("no tool may be called"))
	}
	return fakegen.Answer{Tokens: func(yield func(fakegen.Piece) bool) {
		for i, text := range arguments {
			for piece := range callPieces(i, text) {
				if !yield(fakegen.Piece{Call: &piece}) {
					return
				}
			}
		}
	}}
}

// callPieces returns the pieces of call i of get_weather: its id and name, then a character each.
func callPieces(i int, arguments string) iter.Seq[protocol.CallPiece] {
	return func(yield func(protocol.CallPiece) bool) {
		if !yield(protocol.CallPiece{Index: i, ID: fmt.Sprintf("call_%d", i+1), Name: "get_weather"}) {
			return
		}
		for _, c := range arguments {
			if !yield(protocol.CallPiece{Index: i, Arguments: string(c)}) {
				return
			}
		}
	}
}

// slow says three words, with a pause of 200 ms, or as long as rest says, before each.
func slow(_ *protocol.Generate, rest string) fakegen.Answer {
	return fakegen.Answer{Pace: every(rest, 200*time.Millisecond), Tokens: words("one two three")}
}

// endless says a word every 10 ms, or as often as rest says, until it is cancelled.
func endless(_ *protocol.Generate, rest string) fakegen.Answer {
	return fakegen.Answer{Pace: every(rest, 10*time.Millisecond), Tokens: func(yield func(fakegen.Piece) bool) {
		for yield(fakegen.Piece{Text: "again "}) {
		}
	}}
}

// clock says the time in nanoseconds, every millisecond or as often as rest says, whatever the time
// that a token takes to send.
func clock(_ *protocol.Generate, rest string) fakegen.Answer {
	pace := every(rest, time.Millisecond)
	return say(func(yield func(fakegen.Piece) bool) {
		for due := time.Now(); yield(fakegen.Piece{Text: strconv.FormatInt(time.Now().UnixNano(), 10)}); {
			due = due.Add(pace)
			time.Sleep(time.Until(due))
		}
	})
}

// every returns the duration that the first word of text names.
func every(text string, otherwise time.Duration) time.Duration {
	first, _, _ := strings.Cut(text, " ")
	if d, err := time.ParseDuration(first); err == nil {
		return d
	}
	return otherwise
}

// seeded says words that depend on the seed alone.
func seeded(m *protocol.Generate, _ string) fakegen.Answer {
	seed := rand.Uint64()
	if m.Seed != nil {
		seed = *m.Seed
	}
	numbers := rand.New(rand.NewPCG(seed, 0))
	return say(words(fmt.Sprint(numbers.Perm(20))))
}

// request says what was asked, as JSON.
func request(m *protocol.Generate, _ string) fakegen.Answer {
	text, err := json.Marshal(m)
	if err != nil {
		return fail(protocol.CodeInternal, "")
	}
	return say(words(string(text)))
}
