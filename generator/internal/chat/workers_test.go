package chat

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// loops is a template that takes about a third of a second for a message "slow", does not
// end for "endless", and takes no time for others.
const loops = "{% if messages[0].content == 'slow' %}" +
	"{% for a in range(100) %}{% for b in range(50000) %}{% endfor %}{% endfor %}{% endif %}" +
	"{% if messages[0].content == 'endless' %}" +
	"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}"

func say(content string) []protocol.Message {
	return []protocol.Message{{Role: "user", Content: content}}
}

// If the worker is killed between two prompts, another one renders the second.
func TestKilledBetweenPrompts(t *testing.T) {
	template := newTemplate(t, loops)
	for range 3 {
		if err := template.only(t).command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if got, err := template.render(hello, maxBytes); got != "Hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// If the worker is killed while it renders a prompt, another one renders it.
func TestKilledDuringAPrompt(t *testing.T) {
	template := newTemplate(t, loops)
	process := template.only(t).command.Process
	rendered := make(chan error, 1)
	go func() {
		got, err := template.render(say("slow"), maxBytes)
		if err == nil && got != "slow" {
			err = errors.New(got)
		}
		rendered <- err
	}()
	awaitWork(t, process)
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-rendered; err != nil {
		t.Error(err)
	}
}

// Render fails after two workers were killed.
func TestKilledTwice(t *testing.T) {
	template := newTemplate(t, "{{ messages[0].content }}")
	started, command := 0, template.command
	_ = template.only(t).command.Process.Kill()
	template.command = func() *exec.Cmd {
		started++
		return exec.Command("sh", "-c", "read line; echo '{}'; kill -9 $$")
	}
	_, err := template.render(hello, maxBytes)
	if !errors.Is(err, ErrTemplate) || !errors.Is(err, errKilled) || started != 1 {
		t.Errorf("%v, %d processes", err, started)
	}
	template.command = command
	if got, err := template.render(hello, maxBytes); got != "Hello" || err != nil {
		t.Errorf("then %q, %v", got, err)
	}
}

// If the template itself ends its worker, Render does not retry: another one would end, too.
func TestTemplateFailuresAreNotRetried(t *testing.T) {
	for name, content := range map[string]string{"time": "endless", "memory": "large"} {
		if name == "memory" && underRace {
			continue // memory has no bound there
		}
		const large = "{% if messages[0].content == 'large' %}" + hoard + "{% endif %}"
		template := newTemplate(t, loops+large)
		if name == "time" {
			template.limit = 100 * time.Millisecond
		}
		started, command := 0, template.command
		template.command = func() *exec.Cmd {
			started++
			return command()
		}
		_, err := template.render(say(content), maxBytes)
		if !errors.Is(err, ErrTemplate) || errors.Is(err, errKilled) || started != 0 {
			t.Errorf("%s: %v, %d more processes", name, err, started)
		}
	}
}

// A slow prompt occupies one worker. Another one starts for other prompts.
func TestSlowPromptHoldsOneWorker(t *testing.T) {
	template := newTemplate(t, loops)
	first := template.only(t)
	slow := make(chan error, 1)
	go func() {
		_, err := template.render(say("endless"), maxBytes)
		slow <- err
	}()
	awaitWork(t, first.command.Process)
	for range 3 {
		if got, err := template.render(hello, maxBytes); got != "Hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	select {
	case err := <-slow:
		t.Fatalf("the slow prompt ended: %v", err)
	default:
	}
	template.Close() // ends the busy worker, too
	if err := <-slow; !errors.Is(err, ErrTemplate) {
		t.Error(err)
	}
	if first.command.ProcessState == nil || len(template.idle)+len(template.busy) != 0 {
		t.Errorf("%d idle, %d busy", len(template.idle), len(template.busy))
	}
}

// A retired template finishes the prompt that it renders and those that come late, and no worker stays.
func TestRetiredTemplate(t *testing.T) {
	template := newTemplate(t, loops)
	worker := template.only(t)
	rendered := make(chan error, 1)
	go func() {
		got, err := template.render(say("slow"), maxBytes)
		if err == nil && got != "slow" {
			err = errors.New(got)
		}
		rendered <- err
	}()
	awaitWork(t, worker.command.Process)
	template.Retire()
	late, err := template.render(hello, maxBytes)
	if slow := <-rendered; slow != nil || late != "Hello" || err != nil {
		t.Errorf("%v; then %q, %v", slow, late, err)
	}
	if worker.command.ProcessState == nil || len(template.idle)+len(template.busy) != 0 {
		t.Errorf("%d idle, %d busy", len(template.idle), len(template.busy))
	}
	idle := newTemplate(t, "x")
	worker = idle.only(t)
	if idle.Retire(); worker.command.ProcessState == nil || len(idle.idle) != 0 {
		t.Error("an idle worker stays")
	}
}

// awaitWork waits until a process has used some processor time.
func awaitWork(t *testing.T, process *os.Process) {
	t.Helper()
	before := ticks(t, process)
	for end := time.Now().Add(patience); ticks(t, process) < before+5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the process is idle")
		}
	}
}

// ticks returns a process's user time in hundredths of a second.
func ticks(t *testing.T, process *os.Process) int {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.Pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	n, err := strconv.Atoi(strings.Fields(fields)[11]) // utime
	if err != nil {
		t.Fatal(err)
	}
	return n
}
