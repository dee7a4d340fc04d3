//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced     = regexp.MustCompile("(?s)```sh\n(.*?)```")
	inlineMake = regexp.MustCompile("`make ([a-z-]+)")
	// words matches the words of a command line, quoted ones with their quotes, and what divides commands.
	words    = regexp.MustCompile(`"[^"]*"|'[^']*'|[|;&]+|[^\s"'|;&]+`)
	longFlag = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// guide compares commands in documents with the programs and the Makefile.
type guide struct {
	targets []string
	help    map[string]string // by command line without flags
	seen    int               // commands of ours
}

func newGuide(t *testing.T) *guide {
	text, err := os.ReadFile("../../Makefile")
	must(t, err)
	g := &guide{help: map[string]string{}}
	for _, target := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(text), -1) {
		g.targets = append(g.targets, target[1])
	}
	return g
}

// helpOf returns a command's help, or "" if there is no such command.
func (g *guide) helpOf(t *testing.T, args ...string) string {
	t.Helper()
	key := strings.Join(args, " ")
	if _, known := g.help[key]; !known {
		cmd := exec.Command(filepath.Join(binaries, args[0]), append(args[1:], "--help")...)
		out, err := cmd.Output()
		if err != nil {
			out = nil
		}
		g.help[key] = string(out)
	}
	return g.help[key]
}

// problems returns the names in a line of a document that don't exist.
func (g *guide) problems(t *testing.T, line string) (list []string) {
	line, comment, _ := strings.Cut(line, "# ")
	var command []string
	for _, word := range append(words.FindAllString(line, -1), ";") {
		if strings.Trim(word, "|;&") != "" {
			command = append(command, word)
			continue
		}
		list = append(list, g.command(t, command, comment)...)
		command = nil
	}
	return list
}

// command returns the names that don't exist in a command and its comment.
func (g *guide) command(t *testing.T, command []string, comment string) (list []string) {
	command = slices.DeleteFunc(slices.Clone(command), func(word string) bool { return word == "sudo" })
	if len(command) == 0 {
		return nil
	}
	switch name := filepath.Base(command[0]); name {
	case "make":
		g.seen++
		return g.make(command[1:])
	case "reel", "reel-generator", "reel-gateway", "reel-bench":
		g.seen++
		return g.program(t, name, command[1:], comment)
	}
	return nil
}

// make returns the targets that the Makefile lacks.
func (g *guide) make(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(word string) bool {
		return strings.Contains(word, "=") || slices.Contains(g.targets, word)
	})
}

// program returns the subcommands and flags that a program lacks. An unquoted first word is a subcommand. Flags of
// reel-bench after -- are the generator's.
func (g *guide) program(t *testing.T, name string, args []string, comment string) (list []string) {
	path := []string{name}
	if len(args) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(args[0]) {
		if !strings.Contains(g.helpOf(t, name), "\n  "+args[0]+" ") {
			return []string{args[0]}
		}
		path = append(path, args[0])
	}
	own, after, _ := strings.Cut(strings.Join(args, " "), " -- ")
	check := func(text, help string) {
		for _, flag := range longFlag.FindAllString(text, -1) {
			if !regexp.MustCompile(flag + `[ \n,\[]`).MatchString(help) {
				list = append(list, flag)
			}
		}
	}
	check(own+" "+comment, g.helpOf(t, path...))
	if name == "reel-bench" {
		check(after, g.helpOf(t, "reel-generator"))
	}
	return list
}

// Every command in the guides' blocks, and every target of make that they name, exists.
func TestCommandsOfTheGuidesExist(t *testing.T) {
	t.Parallel()
	g := newGuide(t)
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "systemd/README.md",
		"bench/README.md", "generator/tiny/README.md"} {
		text, err := os.ReadFile("../../" + name)
		must(t, err)
		for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(block[1]) {
				for _, problem := range g.problems(t, line) {
					t.Errorf("%s names %s, which does not exist: %s", name, problem, line)
				}
			}
		}
		for _, target := range inlineMake.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(g.targets, target[1]) {
				t.Errorf("%s names make %s, which does not exist", name, target[1])
			}
		}
	}
	if g.seen < 20 {
		t.Errorf("only %d commands: have the guides another form?", g.seen)
	}
	for line, want := range map[string]string{
		"make nothing":                                    "nothing",
		"make run PROMPT=x nothing":                       "nothing",
		"bin/reel statsu":                                 "statsu",
		"echo x | bin/reel --no-such x":                   "--no-such",
		"bin/reel status --max-tokens 1":                  "--max-tokens",
		"bin/reel \"ROMEO:\"  # or --jsonly":              "--jsonly",
		"reel-bench latency -- --max-batch 8 --rate 1":    "--rate",
		"bin/reel-generator --model x & bin/reel nothing": "nothing",
	} {
		if got := g.problems(t, line); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
