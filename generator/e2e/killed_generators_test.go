//go:build linux

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// killsOfWave is the most often that generators are killed while one wave of streams runs: a stream is resumed three
// times.
const killsOfWave = 3

// showsTools is a chat template that shows tools as Hermes does, so that calls are read and required ones are followed.
const showsTools = `{% if tools %}<tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call>` +
	`{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}`

// streamed is a request over HTTP.
type streamed struct{ path, body string }

// plainRequests returns the i-th of requests of each kind that needs no reel-format.
func plainRequests(i int) []streamed {
	const v1 = "/v1/completions"
	return []streamed{
		{v1, fmt.Sprintf(`{"prompt": "ROMEO %d:", "max_tokens": 24, "temperature": 0, "stream": true}`, i)},
		{v1, fmt.Sprintf(`{"prompt": "JULIET:", "max_tokens": 32, "seed": %d, "logprobs": 2, "stream": true,
			"stream_options": {"include_usage": true}}`, i)},
		{v1, fmt.Sprintf(`{"prompt": "NURSE:", "max_tokens": 40, "seed": %d, "temperature": 1, "presence_penalty": 0.5,
			"stop": ["the", ".\n"], "stream": true}`, i)},
		{v1, fmt.Sprintf(`{"prompt": [%d, 500, 501], "max_tokens": 16, "seed": %d, "n": 2, "echo": true}`, 600+i, i)},
		{"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "TYBALT %d:"}], "max_tokens": 24,
			"seed": %d, "stream": true, "tools": [{"type": "function", "function": {"name": "fly"}}]}`, i, i)},
		{"/api/generate", fmt.Sprintf(`{"model": "reel-tiny", "prompt": "MERCUTIO:", "raw": true,
			"options": {"num_predict": 24, "seed": %d}}`, i)},
	}
}

// answered is what tests compare of an answer: its texts, reasoning and calls by choice, how it ended, and its usage.
type answered struct {
	Texts  map[int]string
	Finish map[int]string
	Usage  string
	Errors string
}

// piece is a line or an event of an answer in either API, or the whole of it.
type piece struct {
	Response string
	Reason   string `json:"done_reason"`
	Choices  []struct {
		Index    int
		Text     string
		Delta    message
		Message  message
		Logprobs json.RawMessage
		Finish   string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
	Prompt     int             `json:"prompt_eval_count"`
	Completion int             `json:"eval_count"`
	Error      json.RawMessage // of either form
}

type message struct {
	Content   string
	Reasoning string `json:"reasoning_content"`
	Calls     []struct {
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// add adds a piece of the answer. Calls and log-probabilities are part of the text.
func (a *answered) add(line string) {
	var p piece
	if err := json.Unmarshal([]byte(line), &p); err != nil {
		a.Errors += err.Error()
		return
	}
	a.Errors += string(p.Error)
	a.Texts[0] += p.Response
	a.Finish[0] += p.Reason
	for _, c := range p.Choices {
		text := c.Text
		for _, m := range []message{c.Delta, c.Message} {
			text += m.Content + m.Reasoning
			for _, call := range m.Calls {
				text += call.ID + call.Function.Name + call.Function.Arguments
			}
		}
		if probs := string(c.Logprobs); probs != "null" {
			text += probs
		}
		a.Texts[c.Index] += text
		a.Finish[c.Index] += c.Finish
	}
	if n := p.Usage.Prompt + p.Prompt; n > 0 {
		a.Usage = fmt.Sprint(n, " and ", p.Usage.Completion+p.Completion)
	}
}

// String returns the answer for a comparison.
func (a *answered) String() string {
	text, _ := json.Marshal(a) // maps of texts: it never fails
	return string(text)
}

// send sends a request and returns its answer. heard counts the lines that have come of all answers.
func send(url string, q streamed, heard *atomic.Int64) string {
	a := answered{Texts: map[int]string{}, Finish: map[int]string{}}
	r, err := http.NewRequest(http.MethodPost, url+q.path, strings.NewReader(q.body))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+keyA)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if strings.HasPrefix(line, "{") {
			a.add(line)
			heard.Add(1)
		}
		if err != nil {
			if err != io.EOF {
				a.Errors += err.Error()
			}
			return a.String()
		}
	}
}

// undying are generators that are started again when they were killed.
type undying struct {
	t       *testing.T
	flags   []string
	sockets []string
	mu      sync.Mutex // held while processes change
	now     []*process // by socket
}

// startUndying starts n generators of one model.
func startUndying(t *testing.T, n int, flags ...string) *undying {
	template := filepath.Join(tempDir(t), "template")
	must(t, os.WriteFile(template, []byte(showsTools), 0o600))
	u := &undying{t: t, flags: append([]string{"--chat-template", template}, flags...), now: make([]*process, n)}
	for i := range n {
		g := serve(t, u.flags...)
		u.sockets, u.now[i] = append(u.sockets, g.socket), g.process
	}
	return u
}

// kill kills the generator of a socket and starts it again after a pause.
func (u *undying) kill(i int, pause time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now[i].signal(syscall.SIGKILL)
	<-u.now[i].exited
	time.Sleep(pause)
	u.now[i] = prepare(u.t, "reel-generator",
		append([]string{"--socket", u.sockets[i], "--log-level", "warn", "--device", device}, u.flags...)...).start()
}

// wave sends all requests at once and kills generators in the middle, some twice in turn or all at once. lines is the
// number of lines of all answers. It returns the answers and the number of kills.
func (u *undying) wave(
	url string, list []streamed, lines int64, most int, r *rand.Rand,
) (answers []string, kills int) {
	var heard atomic.Int64
	var running sync.WaitGroup
	answers = make([]string, len(list))
	for i, q := range list {
		running.Go(func() { answers[i] = send(url, q, &heard) })
	}
	for at := int64(0); kills < most; {
		at += 1 + r.Int64N(lines/4)
		for heard.Load() < min(at, lines*3/4) { // fewer than all of them: some stream runs
			time.Sleep(time.Millisecond)
		}
		first := r.IntN(len(u.sockets))
		u.kill(first, time.Duration(r.IntN(50))*time.Millisecond)
		kills++
		if other := (first + 1) % len(u.sockets); kills < most && r.IntN(4) == 0 { // the same again if it is the only one
			u.kill(other, 0)
			kills++
		}
	}
	running.Wait()
	return answers, kills
}

// survive kills one and two generators n times each while streams run, and compares each answer with that
// of the same request undisturbed.
func survive(t *testing.T, n int, requests func(i int) []streamed, streams int) {
	for count := 1; count <= 2; count++ {
		t.Run(fmt.Sprintf("of %d", count), func(t *testing.T) {
			u := startUndying(t, count)
			url := gatewayOf(t, u.sockets...)
			var list []streamed
			for i := 0; len(list) < streams; i++ {
				list = append(list, requests(i)...)
			}
			list = list[:streams]
			var lines atomic.Int64
			want := make([]string, len(list))
			var all sync.WaitGroup
			for i, q := range list {
				all.Go(func() { want[i] = send(url, q, &lines) })
			}
			all.Wait()
			for i := range want {
				if !strings.Contains(want[i], `"Errors":""`) {
					t.Fatalf("undisturbed: %+v: %s", list[i], want[i])
				}
			}
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			for left := n; left > 0; {
				answers, kills := u.wave(url, list, lines.Load(), min(left, killsOfWave), r)
				left -= kills
				for i, got := range answers {
					if got != want[i] {
						t.Errorf("seed %d, %d kills left: %+v\n got %s\nwant %s", seed, left, list[i], got, want[i])
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// kills returns how often the tests kill generators: REEL_KILLS, or few.
func kills(t *testing.T, few int) int {
	text := os.Getenv("REEL_KILLS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// Every stream ends with the text that it gives undisturbed, though its generators are killed in the middle. The
// test with formats is TestFormatsSurviveKilledGenerators.
func TestStreamsSurviveKilledGenerators(t *testing.T) {
	t.Parallel()
	survive(t, kills(t, scaled(2, 1)), plainRequests, scaled(64, 12))
}

// If another model comes back in a killed generator's place, streams that have text end with an error, and no text of
// the other model is in them.
func TestOtherModelIsSeen(t *testing.T) {
	t.Parallel()
	dir, weights := checkpoint(t)
	u := startUndying(t, 1, "--model", dir)
	url := gatewayOf(t, u.sockets...)
	q := streamed{"/v1/completions", fmt.Sprintf(`{"prompt": "ROMEO:", "max_tokens": %d, "temperature": 0,
		"stream": true, "ignore_eos": true}`, scaled(900, 300))}
	var none, heard atomic.Int64
	want := send(url, q, &none)
	must(t, os.WriteFile(filepath.Join(dir, "other"), otherWeights(weights), 0o600))
	must(t, os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, weightsFile))) // for the next start
	answer := make(chan string)
	go func() { answer <- send(url, q, &heard) }()
	for heard.Load() < 20 {
		time.Sleep(time.Millisecond)
	}
	u.kill(0, 0)
	got := <-answer
	var a, whole answered
	must(t, json.Unmarshal([]byte(got), &a))
	must(t, json.Unmarshal([]byte(want), &whole))
	if !strings.Contains(a.Errors, "not_resumed") || a.Texts[0] == "" || !strings.HasPrefix(whole.Texts[0], a.Texts[0]) {
		t.Errorf("%s\nundisturbed %s", got, want)
	}
}
