// Package manual writes a command's man pages and completions, for packages. Only programs
// built with the tag manual contain it.
package manual

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Section is a section of a command's man page that its help does not have.
type Section struct {
	Title   string // in capitals
	Entries []Entry
}

// Entry is a term and its explanation.
type Entry struct{ Term, Text string }

// Exit returns the section about exit codes.
func Exit(entries ...Entry) Section { return Section{"EXIT STATUS", entries} }

// Environment returns the section about variables.
func Environment(entries ...Entry) Section { return Section{"ENVIRONMENT", entries} }

// Files returns the section about files.
func Files(entries ...Entry) Section { return Section{"FILES", entries} }

// Notes returns the section with all that a flag's line is too short for.
func Notes(entries ...Entry) Section { return Section{"NOTES", entries} }

// Write writes man1/*.1 for root and its subcommands, and completions for bash, zsh and fish,
// to dir. All pages get the sections, except for NOTES and FILES, which only root's page gets. The
// date of a page is SOURCE_DATE_EPOCH, if that is set.
func Write(root *cobra.Command, dir string, sections ...Section) error {
	pages := filepath.Join(dir, "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	name := root.Name()
	return errors.Join(
		writePages(root, pages, sections),
		root.GenBashCompletionFileV2(filepath.Join(dir, name+".bash"), true),
		root.GenZshCompletionFile(filepath.Join(dir, "_"+name)),
		root.GenFishCompletionFile(filepath.Join(dir, name+".fish"), true))
}

// writePages writes the pages of cmd and its subcommands.
func writePages(cmd *cobra.Command, dir string, sections []Section) error {
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePages(sub, dir, sections); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Section: "1", Source: "Reel", Manual: "Reel"}, &page); err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	return os.WriteFile(filepath.Join(dir, name), []byte(withSections(page.String(), cmd, sections)), 0o644)
}

// withSections adds sections to a page, before SEE ALSO.
func withSections(page string, cmd *cobra.Command, sections []Section) string {
	page = strings.Replace(page, ".SH EXAMPLE\n", ".SH EXAMPLES\n", 1)
	body, also, found := strings.Cut(page, ".SH SEE ALSO\n")
	var b strings.Builder
	b.WriteString(strings.TrimRight(body, "\n") + "\n")
	for _, s := range sections {
		if cmd.HasParent() && (s.Title == "NOTES" || s.Title == "FILES") {
			continue
		}
		b.WriteString(".SH " + s.Title + "\n")
		for _, e := range s.Entries {
			b.WriteString(".TP\n\\fB" + roff(e.Term) + "\\fP\n" + roff(e.Text) + "\n")
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	if found {
		b.WriteString(strings.TrimRight(also, "\n") + ",\n")
	}
	b.WriteString(others(cmd.Root().Name()) + "\n")
	return b.String()
}

// others names the pages of the other programs.
func others(name string) string {
	var list []string
	for _, other := range []string{"reel", "reel-bench", "reel-gateway", "reel-generator"} {
		if other != name {
			list = append(list, "\\fB"+roff(other)+"(1)\\fP")
		}
	}
	return strings.Join(list, ", ")
}

// roff escapes text for a page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
