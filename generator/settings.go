//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"reel/generator/internal/files"
)

// settingsReader reads the generator's settings: a flag wins over the file that --settings
// names, which wins over the environment.
type settingsReader struct {
	env   func(string) string
	flags map[string]string // that were given, by name
	// loaded are the variables that the file had when it was first read. A service
	// manager has put them into the environment too, where they stay as they were.
	loaded map[string]string
	texts  map[string]string // of all settings, by name, as they were read last
}

// newSettingsReader takes the flags from cmd, whose command line has been parsed.
func newSettingsReader(env func(string) string, cmd *cobra.Command, settings []*setting) *settingsReader {
	r := &settingsReader{env: env, flags: map[string]string{}}
	for _, s := range settings {
		if cmd.Flags().Changed(s.name) {
			r.flags[s.name] = s.text
		}
	}
	return r
}

// read reads all settings anew. What it refuses is errConfig.
func (r *settingsReader) read() (Options, error) {
	var o Options
	file, err := r.file()
	if err != nil {
		return o, refuse(errConfig, "--settings: %w", err)
	}
	if r.loaded == nil {
		r.loaded = file
	}
	texts := map[string]string{}
	for _, s := range o.settings() {
		if value, from := r.value(s, file); value != "" {
			if err := s.Set(value); err != nil {
				return o, fmt.Errorf("invalid value %q of %s in the %s: %w", value, s.variable(), from, err)
			}
		}
		texts[s.name] = s.text
	}
	r.texts = texts
	return o, nil
}

// value is what s is set to, or empty, and where.
func (r *settingsReader) value(s *setting, file map[string]string) (value, from string) {
	if value := r.flags[s.name]; value != "" {
		return value, "command line"
	}
	if value := file[s.variable()]; value != "" {
		return value, "settings"
	}
	if _, stale := r.loaded[s.variable()]; stale {
		return "", ""
	}
	return r.env(s.variable()), "environment"
}

// file reads the file of settings. One that is not there is empty.
func (r *settingsReader) file() (map[string]string, error) {
	path := r.flags["settings"]
	if path == "" {
		path = r.env("REEL_SETTINGS")
	}
	if path == "" {
		return map[string]string{}, nil
	}
	f, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseVariables(bufio.NewScanner(f), path)
}

// parseVariables reads lines of NAME=value as systemd.exec(5) has them in an
// EnvironmentFile, less what nobody needs here: a value goes to the end of its
// line, in quotes or without.
func parseVariables(lines *bufio.Scanner, name string) (map[string]string, error) {
	variables := map[string]string{}
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if value, ok = unquoted(value, ok); !ok || key != strings.TrimSpace(key) || key == "" {
			return nil, fmt.Errorf("%s:%d: want NAME=value, in one line, without a backslash: %s", name, n, line)
		}
		variables[key] = value
	}
	return variables, lines.Err()
}

// unquoted is value without the quotes around it; ok is false where it is no value.
func unquoted(value string, ok bool) (string, bool) {
	if !ok || strings.Contains(value, `\`) {
		return "", false
	}
	value = strings.TrimSpace(value)
	if value == "" || value[0] != '"' && value[0] != '\'' {
		return value, true
	}
	inner, closed := strings.CutSuffix(value[1:], value[:1])
	return inner, closed && !strings.Contains(inner, value[:1])
}
