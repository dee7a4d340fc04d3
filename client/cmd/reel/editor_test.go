package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// person is a test that sits at a terminal on which reel runs.
type person struct {
	*testing.T
	generator *fakegen.Generator
	ours      *os.File // the terminal
	theirs    *os.File
	shown     chan string // what reel prints
	unseen    string      // of that, after the last text that sees found
	cmd       *exec.Cmd
}

// sitDown runs reel chat with the arguments on a terminal, with its state in a directory.
func sitDown(t *testing.T, state, terminal string, args ...string) *person {
	t.Helper()
	generator := fakegen.New(fakegen.Script{Chat: true})
	socket := serve(t, generator)
	ours, theirs, err := openCooked()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	size := unix.Winsize{Row: 30, Col: 100}
	if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	p := &person{T: t, generator: generator, ours: ours, theirs: theirs, shown: make(chan string, 1000)}
	p.cmd = reelCommand(t, append([]string{"--socket", socket, "chat"}, args...)...)
	p.cmd.Env = append(p.cmd.Env, "XDG_STATE_HOME="+state, "TERM="+terminal)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs, theirs, theirs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go p.watch()
	p.sees("> ")
	return p
}

// watch reads the terminal.
func (p *person) watch() {
	b := make([]byte, 4096)
	for {
		n, err := p.ours.Read(b)
		if err != nil {
			close(p.shown)
			return
		}
		p.shown <- string(b[:n])
	}
}

// sees waits until reel prints text.
func (p *person) sees(text string) {
	p.Helper()
	patience := time.After(20 * time.Second)
	for {
		if _, after, found := strings.Cut(p.unseen, text); found {
			p.unseen = after
			return
		}
		select {
		case more := <-p.shown:
			p.unseen += more
		case <-patience:
			p.Fatalf("does not see %q in %q", text, p.unseen)
		}
	}
}

func (p *person) types(keys string) {
	p.Helper()
	if _, err := p.ours.WriteString(keys); err != nil {
		p.Fatal(err)
	}
}

// sends types keys and waits until the generator has got message as the last of a
// conversation, and the next prompt is printed.
func (p *person) sends(keys, message string) {
	p.Helper()
	p.types(keys)
	got := []string{}
	_, err := p.generator.Wait(patience(), func(m any) bool {
		g, is := m.(*protocol.Generate)
		if is {
			got = append(got, fmt.Sprintf("%.200q", g.Messages[len(g.Messages)-1].Content))
		}
		return is && g.Messages[len(g.Messages)-1].Content == message
	})
	if err != nil {
		p.Fatalf("%.100q: got the messages %s", keys, got)
	}
	p.sees("\n> ")
}

// leaves waits for the end of reel and checks its exit code.
func (p *person) leaves(code int) {
	p.Helper()
	time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code %d, want %d: %q", got, code, p.unseen)
	}
}

// modes returns the terminal's modes.
func (p *person) modes() unix.Termios {
	p.Helper()
	modes, err := unix.IoctlGetTermios(int(p.theirs.Fd()), unix.TCGETS)
	if err != nil {
		p.Fatal(err)
	}
	return *modes
}

// TestEditing: keys edit a line, and characters of two columns are deleted whole.
func TestEditing(t *testing.T) {
	p := sitDown(t, t.TempDir(), "xterm")
	p.sends("wrld\x1b[D\x1b[D\x1b[Do\r", "world")
	p.sends("中文\x7f字\x01é\r", "é中字")
	p.sends("\x1b[A\x1b[A!\r", "world!")
	p.sends("one two\x17three\r", "one three")
	p.types("\x04")
	p.sees("\n") // the shell's prompt has a line of its own
	p.leaves(0)
}

// TestPastedMessages: a paste of several lines is one message, and a long line is whole.
func TestPastedMessages(t *testing.T) {
	p := sitDown(t, t.TempDir(), "xterm")
	p.sends("\x1b[200~line one\r\tline two\r\x1b[201~\r", "line one\n\tline two")
	long := strings.Repeat("0123456789 ", 1000)
	p.sends("<\x1b[200~"+long+"\x1b[201~>\r", "<"+long+">")
	many := strings.Repeat("line\n", 99) + "last"
	p.sends("\x1b[200~"+many+"\x1b[201~\r", many)
	p.sends("\x1b[A again\r", many+" again")
	p.types("kept \x1b[200~" + strings.Repeat("x", protocol.MaxFrame+1) + "\x1b[201~\r")
	p.sees("the pasted text is longer than 4194304 bytes")
	p.sends("\x1b[A!\r", "kept !")
	p.sends("\"\"\"\rfirst\rsecond\r\"\"\"\r", "first\nsecond")
	p.types("/frobnicate\r")
	p.sees("there is no command /frobnicate")
	p.types("/exit\r")
	p.leaves(0)
}

// TestInterrupts: Ctrl-C clears a line that is being typed, also one of several; at an
// empty prompt it ends the chat. The terminal gets its modes back.
func TestInterrupts(t *testing.T) {
	p := sitDown(t, t.TempDir(), "xterm")
	p.types("abc")
	p.sees("abc") // the editor has the terminal
	p.types("\x03")
	p.sees("^C")
	p.sees("> ")
	p.types("\"\"\"\rabc\r")
	p.sees("... ")
	p.sees("... ")
	p.types("d")
	p.sees("d")
	p.types("\x03")
	p.sees("\n> ")
	p.sends("d\r", "d")
	during := p.modes()
	p.types("\x03")
	p.leaves(130)
	if after := p.modes(); after.Lflag&unix.ICANON == 0 || after.Lflag&unix.ECHO == 0 || during.Lflag&unix.ICANON != 0 {
		t.Errorf("modes %x during the chat, %x after it", during.Lflag, after.Lflag)
	}
	p = sitDown(t, t.TempDir(), "xterm")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.leaves(143)
	if after := p.modes(); after.Lflag&unix.ICANON == 0 {
		t.Errorf("modes %x after SIGTERM", after.Lflag)
	}
}

// TestHistoryAcrossChats: the messages of one chat come back in the next, unless
// --no-history is given.
func TestHistoryAcrossChats(t *testing.T) {
	state := t.TempDir()
	p := sitDown(t, state, "xterm")
	p.sends("first\r", "first")
	p.sends("\x1b[200~a\rb\x1b[201~\r", "a\nb")
	p.types("\x04")
	p.leaves(0)
	p = sitDown(t, state, "xterm")
	p.sends("\x1b[A\r", "a\nb")
	p.sends("\x12fir\r", "first")
	p.types("\x04")
	p.leaves(0)
	p = sitDown(t, state, "xterm", "--no-history")
	p.sends("\x1b[A\x1b[Asecret\r", "secret")
	p.types("\x04")
	p.leaves(0)
	text, err := os.ReadFile(filepath.Join(state, "reel", "history"))
	if want := "\"first\"\n\"a\\nb\"\n\"a\\nb\"\n\"first\"\n"; err != nil || string(text) != want {
		t.Errorf("the history is %q, %v", text, err)
	}
}

// TestLineThatTheKernelCuts: without an editor, a line that the kernel has cut is refused.
func TestLineThatTheKernelCuts(t *testing.T) {
	p := sitDown(t, t.TempDir(), "dumb")
	p.types(strings.Repeat("x", 5000) + "\n")
	p.sees("the terminal cuts lines at 4095 bytes")
	p.sees("> ")
	p.sends(strings.Repeat("y", 4000)+"\n", strings.Repeat("y", 4000))
	p.types("\x04")
	p.leaves(0)
}
