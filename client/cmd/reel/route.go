package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// route removes the subcommands from root if args begin like one but have more words
// than it takes, since they are then a prompt. It returns the arguments for root.
func route(root *cobra.Command, args []string) []string {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	command, rest, err := root.Find(args)
	if err != nil || command == root {
		return args
	}
	if command.Flags().Lookup("continue") != nil {
		args, rest = joinName(args), joinName(rest)
	}
	if !takes(root, command, rest) {
		root.RemoveCommand(root.Commands()...)
		root.CompletionOptions.DisableDefaultCmd = true
	}
	return args
}

// joinName joins --continue with the name behind it, which it may have or not.
func joinName(args []string) []string {
	i := slices.Index(args, "--continue")
	if i < 0 || i+1 == len(args) || strings.HasPrefix(args[i+1], "-") {
		return args
	}
	return slices.Concat(args[:i], []string{args[i] + "=" + args[i+1]}, args[i+2:])
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
