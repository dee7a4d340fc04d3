package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// route takes the subcommands from root where args only begin like one: it has
// more words than the subcommand takes, and so they are a prompt.
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

// takes reports whether the words among args are what command takes.
func takes(root, command *cobra.Command, args []string) bool {
	words := wordsOf(args, root, command)
	if command.Name() != "help" {
		return command.ValidateArgs(words) == nil
	}
	topic, left, err := root.Find(words)
	return len(words) == 0 || err == nil && topic != root && len(left) == 0
}

// wordsOf returns what of args is neither a flag nor a flag's value, by the
// flags that commands know. It sets none of them.
func wordsOf(args []string, commands ...*cobra.Command) []string {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	known.ParseErrorsAllowlist.UnknownFlags = true
	known.Usage = func() {}
	for _, c := range commands {
		known.AddFlagSet(c.PersistentFlags())
		known.AddFlagSet(c.Flags())
	}
	// What is wrong with the flags is said by the command that parses them.
	_ = known.ParseAll(args, func(*pflag.Flag, string) error { return nil })
	return known.Args()
}
