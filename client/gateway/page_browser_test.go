//go:build browser

package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// openPage opens the page of a gateway beside a generator that follows script.
func openPage(t *testing.T, script fakegen.Script, change ...func(*Options)) (*browser, *fakegen.Generator) {
	t.Helper()
	base, gen := beside(t, script, change...)
	b := startBrowser(t)
	b.look(1000, 700, "light")
	b.open(base)
	return b, gen
}

// say writes a message and sends it by the keyboard.
func (b *browser) say(text string) {
	b.t.Helper()
	b.wait(`models.size > 0 && !running`)
	b.write(text)
	b.press("Enter")
}

const (
	answered = `document.querySelector("article.assistant:last-child:not(.running)")`
	written  = `document.querySelector("article.assistant:last-child > .text").textContent`
	facts    = `document.querySelector("article:last-child .facts").textContent`
)

// requests returns the messages of all requests that reached the generator, once there are n.
func requests(t *testing.T, gen *fakegen.Generator, n int) (list []*protocol.Generate) {
	t.Helper()
	_, err := gen.Wait(t.Context().Done(), func(m any) bool {
		if g, is := m.(*protocol.Generate); is {
			list = append(list, g)
		}
		return len(list) == n
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// An answer grows on the page while it is written, with its figures at the end. Each turn sends all of
// the conversation.
func TestPageStreams(t *testing.T) {
	b, gen := openPage(t, fakegen.Script{Chat: true, Pace: 300 * time.Millisecond,
		Tokens: []fakegen.Piece{{Reasoning: "hm"}, {Text: "one"}, {Text: " two"}, {Text: " three"}}})
	b.say("count")
	b.wait(`running && ` + written + `.startsWith("one")`)
	b.wait(answered)
	if got := b.value(written); got != "one two three" {
		t.Errorf("the page shows %q", got)
	}
	if got := b.value(facts).(string); !strings.HasPrefix(got, "4 tokens · 30 tokens/s · seed ") {
		t.Errorf("facts %q", got)
	}
	if got := b.value(`document.querySelector("details.reasoning > .text").textContent`); got != "hm" {
		t.Errorf("reasoning %q", got)
	}
	b.say("again")
	messages := requests(t, gen, 2)[1].Messages
	want := []protocol.Message{{Role: "user", Content: "count"}, {Role: "assistant", Content: "one two three"},
		{Role: "user", Content: "again"}}
	if !reflect.DeepEqual(messages, want) {
		t.Errorf("the second request has %+v", messages)
	}
	b.wait(answered)
	b.value(`at("new").click()`)
	b.say("anew")
	if messages := requests(t, gen, 3)[2].Messages; len(messages) != 1 {
		t.Errorf("after New a request has %+v", messages)
	}
	b.unharmed()
}

// HTML in messages and answers is text.
func TestPageShowsText(t *testing.T) {
	hostile := `<img src=x onerror="alert(1)"><script>alert(2)</script><b>&amp;</b>`
	b, _ := openPage(t, fakegen.Script{Chat: true, Pieces: []string{hostile, " \n", hostile}})
	b.say(hostile)
	b.wait(answered)
	if got := b.value(written); got != hostile+" \n"+hostile {
		t.Errorf("the page shows %q", got)
	}
	if got := b.value(`document.querySelectorAll("#log img, #log script, #log b").length`); got != 0.0 {
		t.Errorf("%v elements came from text", got)
	}
	b.unharmed()
}

// The browser itself refuses what is not the page's own: scripts, HTML from strings, other hosts.
func TestPagePolicyHolds(t *testing.T) {
	b, _ := openPage(t, fakegen.Script{})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}))
	defer other.Close()
	for name, attempt := range map[string]string{
		"a script":     `(() => { const s = document.createElement("script"); s.append("window.harmed = 1"); document.body.append(s); return window.harmed })()`,
		"HTML":         `(() => { try { document.body.innerHTML = "<b>x</b>"; return 1 } catch { } })()`,
		"another host": `fetch("` + other.URL + `").then(() => 1, () => undefined)`,
		"a style":      `(() => { const s = document.createElement("style"); s.textContent = "body { color: red }"; document.body.append(s); return getComputedStyle(document.body).color === "rgb(255, 0, 0)" || undefined })()`,
	} {
		before := len(b.reported())
		if got := b.value(attempt); got != nil {
			t.Errorf("%s: %v", name, got)
		}
		b.until(name+" is reported", func() bool { return len(b.reported()) > before })
	}
}

// Stop, and Escape, end the answer here and in the generator. What was written stays.
func TestPageStops(t *testing.T) {
	b, gen := openPage(t, fakegen.Script{Chat: true, Pieces: []string{"half", " an answer"}, Ending: fakegen.Hang})
	cancels := 0
	for i, stop := range []func(){func() { b.press("Escape") }, func() { b.value(`at("stop").focus()`); b.press("Space") }} {
		b.say(fmt.Sprint("question ", i))
		b.wait(`running && ` + written + ` === "half an answer"`)
		stop()
		b.wait(answered)
		if got := b.value(facts).(string); !strings.HasPrefix(got, "stopped · 2 tokens") || b.value(written) != "half an answer" {
			t.Errorf("facts %q, %q", got, b.value(written))
		}
		cancels++
		seen := 0
		_, err := gen.Wait(t.Context().Done(), func(m any) bool {
			if _, is := m.(*protocol.Cancel); is {
				seen++
			}
			return seen == cancels
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := b.value(`document.activeElement.id`); got != "prompt" {
		t.Errorf("the focus is on %q", got)
	}
	if messages := requests(t, gen, 2)[1].Messages; len(messages) != 3 || messages[1].Content != "half an answer" {
		t.Errorf("the second request has %+v", messages)
	}
	b.unharmed()
}

// A model without a chat template goes on from a text, which the page shows before it.
func TestPageCompletes(t *testing.T) {
	b, gen := openPage(t, fakegen.Script{Pieces: []string{" But", " soft!"}})
	b.say("ROMEO:")
	b.wait(answered)
	if got := b.value(written); got != "ROMEO: But soft!" {
		t.Errorf("the page shows %q", got)
	}
	if m := requests(t, gen, 1)[0]; m.Prompt == nil || *m.Prompt != "ROMEO:" || m.Messages != nil {
		t.Errorf("%+v", m)
	}
	if got := b.value(`at("mode").textContent`).(string); !strings.Contains(got, "no chat template") {
		t.Errorf("the page says %q", got)
	}
	b.unharmed()
}

// Everything is reached with the keyboard alone: the settings by Tab and Space, and back to the message.
func TestPageByKeyboard(t *testing.T) {
	b, gen := openPage(t, fakegen.Script{Chat: true})
	b.wait(`models.size > 0`)
	if got := b.value(`document.activeElement.id`); got != "prompt" {
		t.Fatalf("the focus begins on %q", got)
	}
	reach := func(id string) {
		t.Helper()
		for range 20 {
			if b.value(`document.activeElement.id`) == id {
				return
			}
			b.press("Tab")
		}
		t.Fatalf("Tab does not reach %s", id)
	}
	reach("send")
	reach("model")
	reach("new")
	reach("tune")
	b.press("Space")
	reach("temperature")
	b.write("0.25")
	reach("seed")
	b.write("7")
	reach("length")
	b.write("12")
	reach("scroll")
	reach("prompt")
	b.write("a")
	b.press("Shift+Enter")
	b.write("b")
	reach("send")
	b.press("Space")
	b.wait(answered)
	m := requests(t, gen, 1)[0]
	if m.Messages[0].Content != "a\nb" || *m.Temperature != 0.25 || *m.Seed != 7 || *m.MaxTokens != 12 {
		t.Errorf("%+v", m)
	}
	if got := b.value(facts).(string); !strings.HasSuffix(got, " · seed 7") {
		t.Errorf("facts %q", got)
	}
	b.unharmed()
}

// Everything has a name for those who do not see it.
func TestPageNames(t *testing.T) {
	b, _ := openPage(t, fakegen.Script{Chat: true})
	b.wait(`models.size > 0`)
	unnamed := b.value(`[...document.querySelectorAll("button, input, select, textarea")]
		.filter(e => e.tagName === "BUTTON" ? !e.textContent.trim() : e.labels.length === 0)
		.map(e => e.id).join(" ")`)
	live := b.value(`document.querySelector("[role=log][aria-live=polite]") !== null && document.documentElement.lang`)
	if unnamed != "" || live != "en" {
		t.Errorf("without a name: %q; live: %v", unnamed, live)
	}
}

// The colours follow the system's, and both kinds have contrast enough to read: 4.5 to 1, as WCAG asks.
func TestPageColours(t *testing.T) {
	b, _ := openPage(t, fakegen.Script{Chat: true})
	const ground = `getComputedStyle(document.body).backgroundColor`
	light := b.value(ground)
	for _, scheme := range []string{"light", "dark"} {
		b.look(1000, 700, scheme)
		for _, pair := range [][2]string{{"ink", "paper"}, {"quiet", "paper"}, {"accent", "paper"}, {"bad", "paper"}, {"ink", "mine"},
			{"on-accent", "accent"}, {"quiet", "raised"}} {
			got := b.value(fmt.Sprintf(`(() => {
				const luminance = name => {
					const e = document.createElement("i"); e.style.color = "var(--" + name + ")"; document.body.append(e);
					const [r, g, b] = getComputedStyle(e).color.match(/\d+/g).map(v => v / 255)
						.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
					e.remove();
					return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
				};
				const a = luminance(%q), b = luminance(%q);
				return Math.max(a, b) / Math.min(a, b);
			})()`, pair[0], pair[1])).(float64)
			if got < 4.5 {
				t.Errorf("%s: the contrast of %s on %s is %.2f", scheme, pair[0], pair[1], got)
			}
		}
	}
	if dark := b.value(ground); dark == light {
		t.Errorf("dark and light are both %v", dark)
	}
	b.unharmed()
}

// On a phone nothing is wider than its screen, neither long words nor settings.
func TestPageOnAPhone(t *testing.T) {
	b, _ := openPage(t, fakegen.Script{Chat: true, Model: strings.Repeat("long-name", 8)})
	b.look(360, 640, "light")
	b.value(`at("tune").click()`)
	b.value(`askForKey()`)
	b.value(`at("prompt").focus()`)
	b.say(strings.Repeat("unbroken", 60))
	b.wait(answered)
	if got := b.value(`[innerWidth, document.documentElement.scrollWidth, at("scroll").scrollWidth].join()`); got != "360,360,360" {
		t.Errorf("the widths of the window, the page and the log are %v, want 360", got)
	}
	b.unharmed()
}

// Where the server wants a key the page asks for it, keeps it for the tab alone, and goes on.
func TestPageAsksForKey(t *testing.T) {
	b, _ := openPage(t, fakegen.Script{Chat: true, Pieces: []string{"hello"}}, withKey(t, "correct-horse-battery"))
	for _, key := range []string{"wrong", "correct-horse-battery"} {
		b.wait(`document.activeElement.id === "key"`)
		b.write(key)
		b.press("Enter")
	}
	b.say("hi")
	b.wait(answered)
	if got := b.value(`[sessionStorage.getItem("reel.key"), localStorage.length, document.cookie, at("access").hidden].join()`); got != "correct-horse-battery,0,,true" {
		t.Errorf("kept: %v", got)
	}
}

// A generator that sleeps is woken by the first message, which is sent when its model is there.
func TestPageWakesAModel(t *testing.T) {
	b, gen := openPage(t, fakegen.Script{Chat: true, Pieces: []string{"good morning"}}, func(o *Options) {
		record := protocol.RecordPath(o.Generators[0].Socket)
		text := `{"state":"sleeping","pid":1,"at":"2026-01-01T00:00:00Z"}`
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	b.wait(`at("mode").textContent === "No model is ready yet."`)
	b.write("wake up")
	b.press("Enter")
	b.wait(answered)
	if got := requests(t, gen, 1)[0].Messages[0].Content; got != "wake up" {
		t.Errorf("asked %q", got)
	}
}

// withKey has a gateway want a key.
func withKey(t *testing.T, key string) func(*Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Keys = keys }
}

// A refusal is shown with its words, and the text comes back for another try.
func TestPageShowsErrors(t *testing.T) {
	b, _ := openPage(t, fakegen.Script{Chat: true, Pieces: []string{}, Ending: fakegen.Fail,
		Error: protocol.Errorf(protocol.CodePromptTooLong, "shorten it", "the prompt is <too> long")})
	b.say("my text")
	b.wait(`document.querySelector("[role=alert]")`)
	if got := b.value(`document.querySelector("[role=alert]").textContent`).(string); !strings.Contains(got, "<too> long") {
		t.Errorf("the page says %q", got)
	}
	b.wait(`!running`)
	if got := b.value(`at("prompt").value`); got != "my text" {
		t.Errorf("the field has %q", got)
	}
}

// An answer that fails in the middle gives the text back for another try, which asks for it once.
func TestPageTriesAgain(t *testing.T) {
	b, gen := openPage(t, fakegen.Script{Chat: true, Pieces: []string{"half", " an answer"}, Ending: fakegen.Fail,
		Error: protocol.Errorf(protocol.CodeInternal, "ask again", "it broke")})
	b.say("question")
	b.wait(`!running && document.querySelector("[role=alert]")`)
	b.press("Enter")
	got := requests(t, gen, 2)[1].Messages
	if want := []protocol.Message{{Role: "user", Content: "question"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the second try has %+v", got)
	}
}

// The picture in README.md is of this page. make page-picture takes a new one.
func TestPagePicture(t *testing.T) {
	path := filepath.Join("testdata", "page.png")
	if os.Getenv("REEL_TEST_PICTURE") != "" {
		b := startBrowser(t)
		b.look(960, 560, "light")
		b.open(os.Getenv("REEL_URL"))
		b.value(`at("seed").value = 10, at("length").value = 27, at("temperature").value = 0.5`)
		b.say("But soft, what light through yonder window breaks?")
		b.wait(answered)
		b.screenshot(path)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 100_000 {
		t.Errorf("%v: %v", info, err)
	}
}
