//go:build browser

package gateway

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const browserTime = 30 * time.Second // for each command; no passing test waits this long

// browser is a headless Chromium with one page, driven over the pipes that --remote-debugging-pipe opens:
// messages of the DevTools protocol, each ended by a zero byte.
type browser struct {
	t       *testing.T
	in      *os.File
	session string // of the page

	mu       sync.Mutex
	last     int
	waiting  map[int]chan reply
	problems []string // errors on the console, refusals of the policy, uncaught exceptions
}

// reply is the answer to a command, or an event.
type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser starts Chromium, which ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	command, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: apt-get install chromium", err)
	}
	theirsIn, in, err := os.Pipe()
	out, theirsOut, err2 := os.Pipe()
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "reel-browser-")
	if err != nil {
		t.Fatal(err)
	}
	// Its sandbox does not start for root, and the page is our own.
	cmd := exec.CommandContext(t.Context(), command, "--headless=new", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
		"--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirsIn, theirsOut} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirsIn.Close()
	theirsOut.Close()
	b := &browser{t: t, in: in, waiting: map[int]chan reply{}}
	go b.read(bufio.NewReader(out))
	t.Cleanup(func() {
		in.Close() // Chromium ends without its pipe
		_ = cmd.Wait()
		for i := 0; os.RemoveAll(dir) != nil && i < 100; i++ { // its other processes end a little later
			time.Sleep(10 * time.Millisecond)
		}
	})
	b.attach()
	return b
}

// attach opens a page and listens to its errors.
func (b *browser) attach() {
	var target struct{ TargetID string }
	b.command("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.command("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.command(domain+".enable", nil, nil)
	}
}

// read hands out what Chromium says until it ends.
func (b *browser) read(from *bufio.Reader) {
	for {
		message, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(message[:len(message)-1], &r) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case r.ID != 0:
			b.waiting[r.ID] <- r
			delete(b.waiting, r.ID)
		case r.Method == "Runtime.exceptionThrown", r.Method == "Log.entryAdded",
			r.Method == "Runtime.consoleAPICalled":
			b.problems = append(b.problems, string(r.Params))
		}
		b.mu.Unlock()
	}
}

// command sends a command and decodes its result, unless into is nil.
func (b *browser) command(method string, params, into any) {
	b.t.Helper()
	answer := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answer
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			b.t.Fatalf("%s: %s", method, r.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(r.Result, into); err != nil {
				b.t.Fatal(err)
			}
		}
	case <-time.After(browserTime):
		b.t.Fatalf("%s: no answer in %v", method, browserTime)
	}
}

// open loads an address and waits for the page's script.
func (b *browser) open(address string) {
	b.t.Helper()
	b.command("Page.navigate", map[string]any{"url": address}, nil)
	b.wait(`location.href !== "about:blank" && document.readyState === "complete"`)
}

// value evaluates an expression, or the promise that it is.
func (b *browser) value(expression string) any {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.command("Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true, "returnByValue": true,
	}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	return out.Result.Value
}

// wait waits until a condition holds on the page.
func (b *browser) wait(condition string) {
	b.t.Helper()
	b.until(condition, func() bool { return b.value("!!("+condition+")") == true })
}

// until waits until is returns true.
func (b *browser) until(what string, is func() bool) {
	b.t.Helper()
	for end := time.Now().Add(browserTime); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("in vain: %s; the page shows\n%s", what, b.value("document.body.innerText"))
		}
	}
}

// keys are the codes of keys without a character.
var keys = map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "Space": 32}

// press presses a key, perhaps with Shift, as in "Shift+Enter".
func (b *browser) press(key string) {
	b.t.Helper()
	name, shifted := strings.CutPrefix(key, "Shift+")
	event := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": keys[name]}
	if shifted {
		event["modifiers"] = 8
	}
	switch name {
	case "Enter":
		event["text"] = "\r"
	case "Space":
		event["key"], event["text"] = " ", " "
	}
	b.command("Input.dispatchKeyEvent", event, nil)
	event["type"] = "keyUp"
	delete(event, "text")
	b.command("Input.dispatchKeyEvent", event, nil)
}

// write enters text where the focus is.
func (b *browser) write(text string) {
	b.t.Helper()
	b.command("Input.insertText", map[string]any{"text": text}, nil)
}

// look sets the size of the window and the colours that the user prefers.
func (b *browser) look(width, height int, scheme string) {
	b.t.Helper()
	b.command("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
	}, nil)
	b.command("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// screenshot writes what the window shows to a PNG file.
func (b *browser) screenshot(path string) {
	b.t.Helper()
	var shot struct{ Data string }
	b.command("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// unharmed fails the test if the page had an error or broke its own policy.
func (b *browser) unharmed() {
	b.t.Helper()
	for _, problem := range b.reported() {
		b.t.Errorf("the page reports %s", problem)
	}
}

// reported returns what the page has reported so far.
func (b *browser) reported() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}
