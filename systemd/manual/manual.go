// Package manual writes a command's man pages and completions, for packages. Only programs
// built with the tag manual contain it.
package manual

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Write writes man1/*.1 for root and its subcommands, and completions for bash, zsh and fish,
// to dir. The date of a page is SOURCE_DATE_EPOCH, if that is set.
func Write(root *cobra.Command, dir string) error {
	pages := filepath.Join(dir, "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	name := root.Name()
	return errors.Join(
		doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Reel", Manual: "Reel"}, pages),
		root.GenBashCompletionFileV2(filepath.Join(dir, name+".bash"), true),
		root.GenZshCompletionFile(filepath.Join(dir, "_"+name)),
		root.GenFishCompletionFile(filepath.Join(dir, name+".fish"), true))
}
