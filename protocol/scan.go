package protocol

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrStructure is wrapped by every error of Scan.
var ErrStructure = errors.New("protocol: bad structure")

// rule is a set of the scanner's rules. Tests turn rules off one by one, to show which
// input each of them keeps out.
type rule uint8

const (
	ruleTopMap   rule = 1 << iota // the body is a map
	ruleKeys                      // the keys of maps are strings
	ruleDepth                     // at most MaxDepth nested maps and lists
	ruleLength                    // declared lengths fit the remaining bytes
	ruleExt                       // no extension types
	ruleUTF8                      // strings are valid UTF-8
	ruleTrailing                  // nothing follows the map
)

// Scan checks a body's structure before a decoder sees it: one map with string keys, at
// most MaxDepth levels, declared lengths within the remaining bytes, valid UTF-8 strings,
// no extensions, nothing after the map. A decoder trusts declared lengths and recurses
// into values it skips, so it must not see hostile input. Scan takes time linear in the
// body and constant memory. Errors wrap ErrStructure and name the byte.
func Scan(body []byte) error { return scan(body, 0) }

// level is a map or list whose items are being scanned.
type level struct {
	left  int // remaining items; a pair counts as two
	isMap bool
}

// scan is Scan without the rules in off.
func scan(body []byte, off rule) error {
	open := make([]level, 0, MaxDepth)
	at := 0
	for first := true; first || len(open) > 0; first = false {
		if n := len(open) - 1; n >= 0 && !open[n].isMap { // fast path for long lists
			items, size := wholeNumbers(body[at:], open[n].left)
			if items > 0 {
				at += size
				open[n].left -= items
				open = closed(open)
				continue
			}
		}
		it, err := readItem(body[at:])
		if err == nil {
			err = checkItem(it, body[at+it.size:], open, off)
		}
		if err != nil {
			return fmt.Errorf("%w: %w at byte %d", ErrStructure, err, at)
		}
		at += it.size + it.body()
		open = advance(open, it)
	}
	if at != len(body) && off&ruleTrailing == 0 {
		return fmt.Errorf("%w: %d bytes follow the map at byte %d", ErrStructure, len(body)-at, at)
	}
	return nil
}

// advance counts the item in the innermost open level, opens a level for the item's own
// children, and closes the levels that are complete.
func advance(open []level, it item) []level {
	if len(open) > 0 {
		open[len(open)-1].left--
	}
	if n := it.children(); n > 0 {
		open = append(open, level{left: n, isMap: it.kind == kindMap})
	}
	return closed(open)
}

// closed returns open without its complete levels.
func closed(open []level) []level {
	for len(open) > 0 && open[len(open)-1].left == 0 {
		open = open[:len(open)-1]
	}
	return open
}

// checkItem applies the rules to one item; rest holds the bytes after its head.
func checkItem(it item, rest []byte, open []level, off rule) error {
	on := func(r rule) bool { return off&r == 0 }
	switch {
	case len(open) == 0 && it.kind != kindMap && on(ruleTopMap):
		return fmt.Errorf("%s, not a map", it.kind)
	case isKey(open) && it.kind != kindStr && on(ruleKeys):
		return fmt.Errorf("%s as the key of a map", it.kind)
	case it.kind == kindExt && on(ruleExt):
		return errors.New("an extension type")
	case it.body()+it.children() > len(rest) && on(ruleLength):
		return fmt.Errorf("%s of %d declared with %d bytes left", it.kind, it.n, len(rest))
	case isContainer(it) && len(open) >= MaxDepth && on(ruleDepth):
		return fmt.Errorf("more than %d levels", MaxDepth)
	case it.kind == kindStr && on(ruleUTF8) && !utf8.Valid(rest[:it.n]):
		return errors.New("a string that is not UTF-8")
	}
	return nil
}

// isKey reports whether the next item is a key.
func isKey(open []level) bool {
	if len(open) == 0 {
		return false
	}
	top := open[len(open)-1]
	return top.isMap && top.left%2 == 0
}

func isContainer(it item) bool { return it.kind == kindArray || it.kind == kindMap }
