package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"
)

// prompt is the shell's.
const prompt = "$ "

// patience bounds the time that a command may take.
const patience = 30 * time.Second

// event is a piece of the terminal's output.
type event struct {
	at    time.Duration // since the first prompt
	text  string
	typed bool // the prompt, or a command that is typed
}

// shell runs commands on a pseudo-terminal.
type shell struct {
	typing time.Duration // between typed characters
	pause  time.Duration // of silence, after which a command has ended

	terminal *os.File
	output   chan string
	start    time.Time
	events   []event
	typed    bool
}

// record types commands into a shell, each after the one before it has ended, and returns all
// output. The terminal is one without control sequences.
func (s *shell) record(commands []string) ([]event, error) {
	cmd := exec.Command("sh", "-i")
	cmd.Env = append(os.Environ(), "TERM=dumb", "PS1="+prompt, "PS2=> ", "ENV=")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		return nil, err
	}
	s.terminal, s.output, s.start, s.typed = terminal, make(chan string), time.Now(), true
	go s.read()
	err = s.all(commands)
	err = errors.Join(err, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	return s.events, errors.Join(err, terminal.Close())
}

// read hands out what the terminal shows, until it is closed.
func (s *shell) read() {
	defer close(s.output)
	b := make([]byte, 64<<10)
	for {
		n, err := s.terminal.Read(b)
		if n > 0 {
			s.output <- string(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// all types commands.
func (s *shell) all(commands []string) error {
	if err := s.awaitPrompt(); err != nil {
		return err
	}
	for _, command := range commands {
		if err := s.enter(command); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		s.typed = false
		if _, err := s.terminal.WriteString("\n"); err != nil {
			return err
		}
		if err := s.awaitPrompt(); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
	}
	return nil
}

// enter types a command without the newline, and waits until the terminal shows it.
func (s *shell) enter(command string) error {
	before := len(s.events)
	for _, r := range command {
		if _, err := s.terminal.WriteString(string(r)); err != nil {
			return err
		}
		s.listen(s.typing)
	}
	for until := time.Now().Add(patience); time.Now().Before(until); s.listen(s.typing) {
		shown := ""
		for _, e := range s.events[before:] {
			shown += e.text
		}
		if shown == command {
			return nil
		}
	}
	return errors.New("the terminal does not show what is typed")
}

// awaitPrompt waits until the terminal is silent after a prompt.
func (s *shell) awaitPrompt() error {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if s.listen(s.pause) {
			continue
		}
		if n := len(s.events); n > 0 && strings.HasSuffix(s.events[n-1].text, prompt) {
			s.splitPrompt()
			return nil
		}
	}
	return errors.New("the shell shows no prompt")
}

// splitPrompt makes the prompt at the end of the output an event that is typed.
func (s *shell) splitPrompt() {
	last := &s.events[len(s.events)-1]
	last.text = strings.TrimSuffix(last.text, prompt)
	s.events = append(s.events, event{last.at, prompt, true})
	s.typed = true
}

// listen takes output for a time, and reports whether there was any.
func (s *shell) listen(d time.Duration) (heard bool) {
	end := time.After(d)
	for {
		select {
		case text, ok := <-s.output:
			if !ok {
				s.output = nil // closed: only the time goes on
				continue
			}
			s.events = append(s.events, event{time.Since(s.start), text, s.typed})
			heard = true
		case <-end:
			return heard
		}
	}
}
