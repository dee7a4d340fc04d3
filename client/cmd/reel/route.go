package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// route removes the subcommands from root if args begin like one but have more words
// than it takes, since they are then a prompt.
func route(root *cobra.Command, args []string) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	command, rest, err := root.Find(args)
	if err != nil || command == root || takes(root, command, rest) {
		return
	}
	root.RemoveCommand(root.Commands()...)
	root.CompletionOptions.DisableDefaultCmd = true
}

// takes reports whether command takes the words in args.
func takes(root, command *cobra.Command, args []string) bool {
	words := wordsOf(args, root, command)
	if command.Name() != "help" {
		return command.ValidateArgs(words) == nil
	}
	topic, left, err := root.Find(words)
	return len(words) == 0 || err == nil && topic != root && len(left) == 0
}

// wordsOf returns the arguments that are neither flags nor values of flags that commands
// know. It sets no flag.
func wordsOf(args []string, commands ...*cobra.Command) []string {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	known.ParseErrorsAllowlist.UnknownFlags = true
	known.Usage = func() {}
	for _, c := range commands {
		known.AddFlagSet(c.PersistentFlags())
		known.AddFlagSet(c.Flags())
	}
	// The command that parses the flags reports errors in them.
	_ = known.ParseAll(args, func(*pflag.Flag, string) error { return nil })
	return known.Args()
}
