//go:build linux

package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// room is a row of ARCHITECTURE.md's table: a folder and the folders that it may import.
type room struct {
	dir string
	may []string
	all bool
}

var quoted = regexp.MustCompile("`([a-z0-9/-]+)`")

// rooms reads the table.
func rooms(t *testing.T) (list []room) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		r := room{dir: strings.TrimSuffix(quoted.FindStringSubmatch(cells[1])[1], "/"),
			all: strings.Contains(cells[3], "all of the above")}
		for _, name := range quoted.FindAllStringSubmatch(cells[3], -1) {
			r.may = append(r.may, name[1])
		}
		list = append(list, r)
	}
	if len(list) < 10 {
		t.Fatalf("only %d rooms: has the table another form?", len(list))
	}
	return list
}

// roomOf returns the innermost room that contains a folder.
func roomOf(rooms []room, dir string) (found room) {
	for _, r := range rooms {
		if (dir == r.dir || strings.HasPrefix(dir, r.dir+"/")) && len(r.dir) > len(found.dir) {
			found = r
		}
	}
	return found
}

// allows reports whether the room may import a folder of another room. The table names rooms
// of generator/internal by their last part.
func (r room) allows(other room) bool {
	return r.all || other.dir == r.dir || slices.Contains(r.may, other.dir) ||
		path.Dir(other.dir) == "generator/internal" && slices.Contains(r.may, path.Base(other.dir))
}

func TestImportsAreThoseOfArchitecture(t *testing.T) {
	rooms := rooms(t)
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		dir := strings.TrimPrefix(words[0], "reel.internal/reel/")
		from := roomOf(rooms, dir)
		if from.dir == "" {
			t.Errorf("%s is in no room", dir)
		}
		for _, imported := range words[1:] {
			if to, ours := strings.CutPrefix(imported, "reel.internal/reel/"); ours && !from.allows(roomOf(rooms, to)) {
				t.Errorf("%s imports %s: ARCHITECTURE.md allows %s only %q", dir, to, from.dir, from.may)
			}
		}
	}
}

var namedFile = regexp.MustCompile("`([A-Za-z0-9_./-]+\\.(?:go|cu|cuh|md|json|sh|py))`")

// TestNamedFilesExist compares the files that the guides name with the tree. A path may
// start at the root, in generator/internal, kernels or bench/results; a bare name may be anywhere.
// Names such as x.go stand for any file.
func TestNamedFilesExist(t *testing.T) {
	var names []string
	err := filepath.WalkDir("..", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && p != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		names = append(names, d.Name())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	exists := func(name string) bool {
		if !strings.Contains(name, "/") {
			return slices.Contains(names, name) || strings.HasPrefix(name, "x.") || strings.HasPrefix(name, "x_")
		}
		return slices.ContainsFunc([]string{"..", "../generator/internal", "../kernels", "../bench/results"},
			func(from string) bool {
				_, err := os.Stat(filepath.Join(from, name))
				return err == nil
			})
	}
	for _, guide := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "README.md"} {
		text, err := os.ReadFile("../" + guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range namedFile.FindAllStringSubmatch(string(text), -1) {
			if !exists(name[1]) {
				t.Errorf("%s names %s, which does not exist", guide, name[1])
			}
		}
	}
	if exists("generator/no_such_file.go") || exists("no_such_file.go") {
		t.Error("a file that does not exist is found")
	}
}
