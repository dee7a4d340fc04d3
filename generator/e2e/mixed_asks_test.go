//go:build linux && formats && clients

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// asker is a client of the gateway with what it can ask of models: words of some, vectors of others.
type asker interface {
	name() string
	kinds() (words, vectors []string)
	// ask asks q under a number and returns the answer, or the error in its place. It asks again while the gateway
	// refuses it.
	ask(id int, q question) (answer, err string)
}

// clientsDir has the clients of other authors.
const clientsDir = "../../client/gateway/testdata/clients"

// driver is a process that asks with another author's client; mixed.py says how it is told what to ask.
type driver struct {
	t     *testing.T
	which string
	asks  struct{ Words, Vectors []string }
	onto  func(id, status int, after, body string) // a refusal

	in      io.WriteCloser
	mu      sync.Mutex // of writes and of what follows
	waiting map[int]chan reply
}

// reply is a line of a driver's output.
type reply struct {
	ID      int
	Answer  string
	Error   string
	Refused int // HTTP status
	After   string
	Body    string
	Kinds   *struct{ Words, Vectors []string }
}

// drivers starts a process for each client. REEL_CLIENTS names the folder in which they are installed.
func drivers(t *testing.T, url string, onto func(id, status int, after, body string)) (all []asker) {
	t.Helper()
	installed := os.Getenv("REEL_CLIENTS")
	if installed == "" {
		t.Fatal("REEL_CLIENTS is the folder that client/gateway/testdata/clients/install prints")
	}
	env := append(os.Environ(), "REEL_GATEWAY="+url, "REEL_KEY="+keyA, "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONWARNINGS=ignore", "NODE_PATH="+filepath.Join(installed, "node_modules"))
	for _, which := range []string{"openai", "anthropic", "ollama"} {
		all = append(all, drive(t, which+"-python", env, onto, filepath.Join(installed, "bin/python3"),
			filepath.Join(clientsDir, "mixed.py"), which))
	}
	return append(all, drive(t, "openai-node", env, onto, "node", filepath.Join(clientsDir, "mixed.cjs")))
}

// drive starts a driver, which ends with the test.
func drive(
	t *testing.T, which string, env []string, onto func(id, status int, after, body string),
	program string, args ...string,
) *driver {
	t.Helper()
	d := &driver{t: t, which: which, onto: onto, waiting: map[int]chan reply{}}
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	var err error
	d.in, err = cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := json.NewDecoder(out)
	var first reply
	if err := lines.Decode(&first); err != nil || first.Kinds == nil {
		t.Fatalf("%s did not start: %v", which, err)
	}
	d.asks = *first.Kinds
	go d.read(lines)
	return d
}

// read hands out replies until the process ends.
func (d *driver) read(lines *json.Decoder) {
	for {
		var r reply
		err := lines.Decode(&r)
		if err == nil && r.Refused != 0 {
			d.onto(r.ID, r.Refused, r.After, r.Body)
			continue
		}
		d.mu.Lock()
		if err != nil {
			for _, to := range d.waiting {
				to <- reply{Error: "the client's process ended"}
			}
			clear(d.waiting)
			d.mu.Unlock()
			return
		}
		d.waiting[r.ID] <- r
		delete(d.waiting, r.ID)
		d.mu.Unlock()
	}
}

func (d *driver) name() string                     { return d.which }
func (d *driver) kinds() (words, vectors []string) { return d.asks.Words, d.asks.Vectors }

func (d *driver) ask(id int, q question) (answer, err string) {
	to := make(chan reply, 1)
	line, _ := json.Marshal(map[string]any{"id": id, "what": q.what, "model": q.model, "n": q.n}) // it never fails
	d.mu.Lock()
	d.waiting[id] = to
	_, wrong := d.in.Write(append(line, '\n'))
	d.mu.Unlock()
	if wrong != nil {
		return "", wrong.Error()
	}
	select {
	case r := <-to:
		return r.Answer, r.Error
	case <-time.After(2 * patience):
		return "", "no answer"
	}
}

// plain is a client of package net/http that reads events itself.
type plain struct {
	url  string
	http http.Client
	onto func(id, status int, after, body string)
}

// plainAsks are its requests: path, and body without the model, in which %[2]d is the number of the question's variant.
var plainAsks = map[string][2]string{
	"completion": {"/v1/completions", `"prompt": "PARIS %[2]d:", "max_tokens": 24, "temperature": 0, "stream": true`},
	"logprobs": {"/v1/completions", `"prompt": "PARIS:", "max_tokens": 20, "seed": %[2]d, "logprobs": 2,
		"stream": true`},
	"tokens": {"/v1/completions", `"prompt": [60%[2]d, 500, 501], "max_tokens": 16, "seed": %[2]d, "n": 2,
		"echo": true`},
	"chat": {"/v1/chat/completions", `"messages": [{"role": "user", "content": "TYBALT %[2]d:"}], "max_tokens": 24,
		"seed": %[2]d, "stream": true`},
	"format": {"/v1/chat/completions", `"messages": [{"role": "user", "content": "TYBALT:"}], "max_tokens": 120,
		"seed": %[2]d, "stream": true,
		"response_format": {"type": "json_schema", "json_schema": {"schema": ` + person + `}}`},
	"response": {"/v1/responses", `"input": "TYBALT %[2]d:", "max_output_tokens": 24, "seed": %[2]d, "stream": true`},
	"message": {"/v1/messages", `"messages": [{"role": "user", "content": "TYBALT %[2]d:"}], "max_tokens": 24,
		"temperature": 0, "stream": true`},
	"ollama chat": {"/api/chat", `"messages": [{"role": "user", "content": "PARIS %[2]d:"}],
		"options": {"num_predict": 24, "seed": %[2]d}`},
}

func (*plain) name() string { return "go" }

func (*plain) kinds() (words, vectors []string) { return slices.Sorted(maps.Keys(plainAsks)), nil }

func (p *plain) ask(id int, q question) (answer, err string) {
	body := fmt.Sprintf(`{"model": %[1]q, `+plainAsks[q.what][1]+`}`, q.model, q.n)
	for end := time.Now().Add(2 * patience); ; {
		answer, wait, err := p.once(id, plainAsks[q.what][0], body)
		if err == nil && wait == 0 {
			return answer, ""
		}
		if err != nil {
			return "", err.Error()
		}
		if time.Now().After(end) {
			return "", "no answer"
		}
		time.Sleep(wait)
	}
}

// once sends a request. wait is the time after which to send it again, if it is refused.
func (p *plain) once(id int, path, body string) (text string, wait time.Duration, err error) {
	r, err := http.NewRequest(http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	r.Header.Set("Authorization", "Bearer "+keyB)
	got, err := p.http.Do(r)
	if err != nil {
		return "", 0, err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		whole, err := io.ReadAll(got.Body)
		p.onto(id, got.StatusCode, got.Header.Get("Retry-After"), string(whole))
		seconds, none := strconv.Atoi(got.Header.Get("Retry-After"))
		if none != nil {
			return "", 0, errors.New(string(whole))
		}
		return "", time.Duration(max(1, seconds)) * time.Second, err
	}
	return collected(got.Body)
}

// collected returns what an answer says, of any API.
func collected(from io.Reader) (text string, _ time.Duration, err error) {
	a := answered{Texts: map[int]string{}, Finish: map[int]string{}}
	lines := bufio.NewReader(from)
	for err == nil {
		var line string
		line, err = lines.ReadString('\n')
		if line = strings.TrimPrefix(strings.TrimSpace(line), "data: "); !strings.HasPrefix(line, "{") {
			continue
		}
		var event struct {
			Type    string
			Delta   json.RawMessage
			Message json.RawMessage // Ollama's
		}
		_ = json.Unmarshal([]byte(line), &event) // add says what is wrong
		switch {
		case event.Type == "error" || event.Type == "response.failed":
			a.Errors += line
		case event.Type != "":
			a.Texts[0] += string(event.Delta)
		default:
			a.Texts[0] += string(event.Message)
			a.add(line)
		}
	}
	if a.Errors != "" {
		return "", 0, errors.New(a.Errors)
	}
	if err == io.EOF {
		err = nil
	}
	return a.String(), 0, err
}
