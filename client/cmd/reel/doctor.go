package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// doctorCommand returns the command that runs reel-generator doctor as this user.
func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps a generator from serving you, and say what to do",
		Long: "Find what keeps a generator from serving you, and say what to do. It runs the\n" +
			"doctor of reel-generator, found beside this program or on the path, with your rights.\n" +
			"It takes settings from the environment, such as REEL_MODEL, and changes nothing. Exit\n" +
			"code 1 if a check fails or no generator serves.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := generatorProgram()
			if err != nil {
				return err
			}
			args := []string{"doctor"}
			if a.socket != "" {
				args = append(args, "--socket", a.socket)
			}
			if asJSON {
				args = append(args, "--json")
			}
			doctor := exec.CommandContext(cmd.Context(), path, args...)
			return runChild(doctor)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// runChild runs a program and prints its output escaped, like reel's own.
func runChild(cmd *exec.Cmd) error {
	out, messages := stdout(), stderr()
	cmd.Stdout, cmd.Stderr = out, messages
	return closedPipe(errors.Join(cmd.Run(), out.flush(), messages.flush()))
}

// errNoProgram means that the generator is not installed.
var errNoProgram = errors.New("reel-generator is neither beside this program nor on the path")

// generatorProgram returns the path of reel-generator, found beside this program or on
// the path.
func generatorProgram() (string, error) {
	const name = "reel-generator"
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errNoProgram
	}
	return path, nil
}
