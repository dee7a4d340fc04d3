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

	"reel/protocol"
)

// working takes about a third of a second for a message "slow" and no time for others. It has no
// end for a message "endless".
const working = "{% if messages[0].content == 'slow' %}" +
	"{% for a in range(100) %}{% for b in range(1000) %}{% endfor %}{% endfor %}{% endif %}" +
	"{% if messages[0].content == 'endless' %}" +
	"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}"

func say(content string) []protocol.Message {
	return []protocol.Message{{Role: "user", Content: content}}
}

// A process that is killed between two texts is replaced, and the text made.
func TestKilledBetweenTexts(t *testing.T) {
	template := newTemplate(t, working)
	for range 3 {
		if err := template.only(t).command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if got, err := template.Render(hello, most); got != "Hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A process that is killed while it makes a text is replaced, and the text made.
func TestKilledInAText(t *testing.T) {
	template := newTemplate(t, working)
	process := template.only(t).command.Process
	rendered := make(chan error, 1)
	go func() {
		got, err := template.Render(say("slow"), most)
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

// A text whose processes are killed again and again fails, after the second.
func TestKilledTwice(t *testing.T) {
	template := newTemplate(t, "{{ messages[0].content }}")
	started, command := 0, template.command
	_ = template.only(t).command.Process.Kill()
	template.command = func() *exec.Cmd {
		started++
		return exec.Command("sh", "-c", "read line; echo '{}'; kill -9 $$")
	}
	_, err := template.Render(hello, most)
	if !errors.Is(err, ErrTemplate) || !errors.Is(err, errKilled) || started != 1 {
		t.Errorf("%v, %d processes", err, started)
	}
	template.command = command
	if got, err := template.Render(hello, most); got != "Hello" || err != nil {
		t.Errorf("then %q, %v", got, err)
	}
}

// What a template does itself is not tried again: another process would end as well.
func TestOwnEndsAreNotRetried(t *testing.T) {
	for name, content := range map[string]string{"time": "endless", "memory": "large"} {
		if name == "memory" && underRace {
			continue // there is no bound then
		}
		const large = "{% if messages[0].content == 'large' %}{{ ('x' * 1000000) * 1000000 }}{% endif %}"
		template := newTemplate(t, working+large)
		if name == "time" {
			template.limit = 100 * time.Millisecond
		}
		started, command := 0, template.command
		template.command = func() *exec.Cmd {
			started++
			return command()
		}
		_, err := template.Render(say(content), most)
		if !errors.Is(err, ErrTemplate) || errors.Is(err, errKilled) || started != 0 {
			t.Errorf("%s: %v, %d more processes", name, err, started)
		}
	}
}

// A slow text leaves a process for another one, which starts only then.
func TestSlowTextHoldsOneProcess(t *testing.T) {
	template := newTemplate(t, working)
	first := template.only(t)
	slow := make(chan error, 1)
	go func() {
		_, err := template.Render(say("endless"), most)
		slow <- err
	}()
	awaitWork(t, first.command.Process)
	for range 3 {
		if got, err := template.Render(hello, most); got != "Hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	select {
	case err := <-slow:
		t.Fatalf("the slow text ended: %v", err)
	default:
	}
	template.Close() // ends the busy one too
	if err := <-slow; !errors.Is(err, ErrTemplate) {
		t.Error(err)
	}
	if first.command.ProcessState == nil || len(template.idle)+len(template.busy) != 0 {
		t.Errorf("%d idle, %d busy", len(template.idle), len(template.busy))
	}
}

// awaitWork waits until a process has worked for a while.
func awaitWork(t *testing.T, process *os.Process) {
	t.Helper()
	before := ticks(t, process)
	for end := time.Now().Add(patience); ticks(t, process) < before+5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not work")
		}
	}
}

// ticks is the time that a process has worked, in hundredths of a second.
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
