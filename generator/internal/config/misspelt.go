package config

import (
	"fmt"
	"slices"
	"strings"
)

// others are variables that are no settings, although a letter makes them one.
var others = []string{
	"REEL_MODELS", // directories of models, for tests on a GPU
}

// Misspelt returns a remark on each variable among names that is no setting but nearly one. names may have values, as
// in [os.Environ]. Further variables that begin with REEL_ belong to other programs and to tests.
func Misspelt(names []string) (remarks []string) {
	var known []string
	for _, s := range Settings(new(Options)) {
		known = append(known, s.Variable())
	}
	for _, name := range names {
		name, _, _ = strings.Cut(name, "=")
		if !strings.HasPrefix(name, "REEL_") || slices.Contains(known, name) || slices.Contains(others, name) {
			continue
		}
		if near := nearest(name, known); near != "" {
			remarks = append(remarks, fmt.Sprintf("%.80q is no setting and is ignored: did you mean %s?", name, near))
		}
	}
	slices.Sort(remarks)
	return slices.Compact(remarks)
}

// nearest returns the one of known that name was meant for, if one letter differs, or two of at least 8; else "". Letters
// that changed places count once, underscores do not count.
func nearest(name string, known []string) (near string) {
	least := 3
	for _, k := range known {
		a, b := letters(name), letters(k)
		most := 1
		if len(b) >= 8 {
			most = 2
		}
		if n := distance(a, b, least); n <= most && n < least {
			least, near = n, k
		}
	}
	return near
}

// letters returns what a variable's name has beside REEL_ and underscores.
func letters(name string) string {
	return strings.ReplaceAll(strings.TrimPrefix(name, "REEL_"), "_", "")
}

// distance returns how many letters have to be added, left out, replaced or swapped with the next one to make b of a;
// from limit on it returns limit.
func distance(a, b string, limit int) int {
	switch {
	case limit <= 0:
		return 0
	case a == "" || b == "":
		return min(limit, len(a)+len(b))
	case a[0] == b[0]:
		return distance(a[1:], b[1:], limit)
	}
	limit = 1 + min(limit-1, distance(a[1:], b, limit-1), distance(a, b[1:], limit-1), distance(a[1:], b[1:], limit-1))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		limit = 1 + min(limit-1, distance(a[2:], b[2:], limit-1))
	}
	return limit
}
