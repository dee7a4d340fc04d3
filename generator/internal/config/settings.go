package config

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/files"
)

// Reader reads the generator's settings. A flag wins over the file of --settings, and the
// file wins over the environment.
type Reader struct {
	env   func(string) string
	flags map[string]string // those given, by name
	// loaded holds the variables of the file as it was first read. A service manager has
	// copied them into the environment, where they are stale once the file changes.
	loaded map[string]string
	Texts  map[string]string // values of all settings by name, as last read
	Names  []string          // of the variables in the file, as last read
}

// NewReader returns a Reader with the flags of a parsed command line. env returns a variable
// of the environment, and given reports whether a flag was on the command line.
func NewReader(env func(string) string, given func(name string) bool, settings []*Setting) *Reader {
	r := &Reader{env: env, flags: map[string]string{}}
	for _, s := range settings {
		if given(s.Name) {
			r.flags[s.Name] = s.Text
		}
	}
	return r
}

// Read reads all settings again. Errors: [ErrConfig].
func (r *Reader) Read() (Options, error) {
	var o Options
	file, err := r.file()
	if err != nil {
		return o, Refuse(ErrConfig, "--settings: %w", err)
	}
	if r.loaded == nil {
		r.loaded = file
	}
	texts, sources := map[string]string{}, map[string]source{}
	for _, s := range Settings(&o) {
		value, from := r.value(s, file)
		if value != "" {
			if err := s.Set(value); err != nil {
				return o, fmt.Errorf("invalid value %q of %s in the %s: %w", value, s.Variable(), from, err)
			}
			sources[s.Name] = from
		}
		texts[s.Name] = s.Text
	}
	if err := o.chooseGPUs(sources["gpu"], sources["gpus"]); err != nil {
		return o, err
	}
	r.Texts, r.Names = texts, slices.Collect(maps.Keys(file))
	return o, nil
}

// source is where a setting's value comes from. A greater one wins.
type source int

const (
	unset source = iota
	environment
	settingsFile
	commandLine
)

func (s source) String() string {
	return []string{"default", "environment", "settings", "command line"}[s]
}

// value returns the text that s is set to and its source; "" if nothing sets it.
func (r *Reader) value(s *Setting, file map[string]string) (value string, from source) {
	if value := r.flags[s.Name]; value != "" {
		return value, commandLine
	}
	if value := file[s.Variable()]; value != "" {
		return value, settingsFile
	}
	if _, stale := r.loaded[s.Variable()]; stale {
		return "", unset
	}
	return r.env(s.Variable()), environment
}

// chooseGPUs settles what --gpu and --gpus say together. A GPU that is named where it wins over the list is alone. Where
// both are named in one place, the GPU has to be one of the list.
func (o *Options) chooseGPUs(one, list source) error {
	switch {
	case list == unset:
	case one > list:
		o.GPUs = nil
	case one == list && !slices.Contains(o.GPUs, o.GPU):
		return Refuse(ErrConfig, "--gpu %d is not among --gpus: leave out --gpu where several GPUs share the model", o.GPU)
	}
	return nil
}

// file reads the settings file. A missing file counts as empty.
func (r *Reader) file() (map[string]string, error) {
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

// parseVariables reads lines of NAME=value, a subset of systemd's EnvironmentFile: a value
// ends with its line, with or without quotes, and has no escapes. name is the file's name in errors.
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

// unquoted strips the quotes around value. It reports false if value is malformed.
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

// ReadEnvironment sets from the environment the settings that were not given as flags.
func ReadEnvironment(env func(string) string, given func(name string) bool, settings []*Setting) error {
	for _, s := range settings {
		value := env(s.Variable())
		if value == "" || given(s.Name) {
			continue
		}
		if err := s.Set(value); err != nil {
			return fmt.Errorf("invalid value %q of %s in the environment: %w", value, s.Variable(), err)
		}
	}
	return nil
}

// ServiceSettings returns the environment, completed by the valid values of the service's
// settings file at path. Without permission to read the file it returns env.
func ServiceSettings(env func(string) string, path string) func(string) string {
	f, err := files.Open(path)
	if err != nil {
		return env
	}
	defer f.Close()
	file, err := parseVariables(bufio.NewScanner(f), path)
	if err != nil {
		return env
	}
	return func(name string) string {
		if value := env(name); value != "" {
			return value
		}
		if known, err := Check(name, file[name]); !known || err != nil {
			return ""
		}
		return file[name]
	}
}

// reloadable lists the settings that take effect at a reload.
var reloadable = map[string]bool{
	"log-level": true, "max-graphs": true, "graph-memory": true, "max-connections": true, "max-requests": true,
	"chat-template": true,
}

// NeedRestart lists the flags that differ between two values of [Reader.Texts] and take
// effect only at the next start.
func NeedRestart(before, after map[string]string) (names []string) {
	for name, text := range after {
		if !reloadable[name] && before[name] != text {
			names = append(names, "--"+name)
		}
	}
	slices.Sort(names)
	return names
}
