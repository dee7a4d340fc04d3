package chat

import (
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// stringMethods are the methods of strings that gonja has as Python has them.
var stringMethods = []string{
	"capitalize", "casefold", "format", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower",
	"isnumeric", "isspace", "istitle", "isupper", "join", "lower", "partition", "removeprefix", "removesuffix",
	"rpartition", "splitlines", "swapcase", "title", "upper", "zfill",
}

// methods returns the methods of values. Those that gonja has differently from Python, in ways
// that templates depend on, are ours: white space is Unicode's, arguments may be tuples, dicts
// keep their order, and none is not undefined.
func methods() exec.Methods {
	m := builtins.Methods
	str := map[string]exec.Method[string]{}
	for _, name := range stringMethods {
		if method, ok := m.Str.Get(name); ok {
			str[name] = func(self string, v *exec.Value, arguments *exec.VarArgs) (any, error) {
				result, err := method(self, v, arguments)
				return plain(result), err
			}
		}
	}
	str["strip"] = stripMethod(true, true)
	str["lstrip"] = stripMethod(true, false)
	str["rstrip"] = stripMethod(false, true)
	str["startswith"] = affixMethod(strings.HasPrefix)
	str["endswith"] = affixMethod(strings.HasSuffix)
	str["replace"] = replaceMethod
	str["count"] = searchMethod(strings.Count)
	str["find"] = searchMethod(func(s, sub string) int { return characters(s, strings.Index(s, sub)) })
	str["rfind"] = searchMethod(func(s, sub string) int { return characters(s, strings.LastIndex(s, sub)) })
	str["split"] = splitMethod(false)
	str["rsplit"] = splitMethod(true)
	m.Str = exec.NewMethodSet(str)
	m.Dict = exec.NewMethodSet(dictMethods)
	// transformers' sandbox has no methods that change a list.
	m.List = exec.NewMethodSet(map[string]exec.Method[[]any]{})
	return m
}

// plain converts a method's result to a string or a list of this package, if it is one.
func plain(result any) any {
	v := exec.ToValue(result)
	if v.IsString() {
		return v.String() // some methods return a string type of gonja's own
	}
	return listed(v).Interface()
}

// argument returns argument i, or the argument of that name; nil if it is missing or none.
func argument(arguments *exec.VarArgs, i int, name string) *exec.Value {
	v, ok := arguments.KwArgs[name]
	if i < len(arguments.Args) {
		v, ok = arguments.Args[i], true
	}
	if !ok || v.IsNil() || isNone(v) {
		return nil
	}
	return v
}

// isPythonSpace is Python's str.isspace of one character.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// strip cuts the characters in set from the ends of s; white space if set is nil.
func strip(s string, set *exec.Value, left, right bool) string {
	in := isPythonSpace
	if set != nil {
		characters := set.String()
		in = func(r rune) bool { return strings.ContainsRune(characters, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s
}

func stripMethod(left, right bool) exec.Method[string] {
	return func(self string, _ *exec.Value, arguments *exec.VarArgs) (any, error) {
		return strip(self, argument(arguments, 0, "chars"), left, right), nil
	}
}

// affixMethod returns startswith or endswith, for a string or a tuple of strings.
func affixMethod(has func(s, affix string) bool) exec.Method[string] {
	return func(self string, _ *exec.Value, arguments *exec.VarArgs) (any, error) {
		affix := argument(arguments, 0, "prefix")
		if len(arguments.Args) != 1 || affix == nil {
			return nil, errors.New("startswith and endswith take one argument here")
		}
		found := affix.IsString() && has(self, affix.String())
		if affix.IsList() {
			affix.Iterate(func(_, _ int, one, _ *exec.Value) bool {
				found = found || has(self, one.String())
				return true
			}, func() {})
		}
		return found, nil
	}
}

func replaceMethod(self string, _ *exec.Value, arguments *exec.VarArgs) (any, error) {
	if len(arguments.Args) < 2 {
		return nil, errors.New("replace takes the old and the new text")
	}
	most := -1
	if v := argument(arguments, 2, "count"); v != nil {
		most = v.Integer()
	}
	return strings.Replace(self, arguments.Args[0].String(), arguments.Args[1].String(), most), nil
}

// searchMethod returns count, find or rfind, over the whole string.
func searchMethod(search func(s, sub string) int) exec.Method[string] {
	return func(self string, _ *exec.Value, arguments *exec.VarArgs) (any, error) {
		if len(arguments.Args) != 1 {
			return nil, errors.New("count and find take one argument here")
		}
		return search(self, arguments.Args[0].String()), nil
	}
}

// characters converts an offset in bytes of s to one in characters; -1 stays.
func characters(s string, bytes int) int {
	if bytes < 0 {
		return -1
	}
	return utf8.RuneCountInString(s[:bytes])
}

// splitMethod returns split or rsplit.
func splitMethod(fromRight bool) exec.Method[string] {
	return func(self string, _ *exec.Value, arguments *exec.VarArgs) (any, error) {
		most := -1
		if v := argument(arguments, 1, "maxsplit"); v != nil {
			most = v.Integer()
		}
		separator := argument(arguments, 0, "sep")
		switch {
		case separator != nil && separator.String() == "":
			return nil, errors.New("empty separator")
		case separator == nil && most >= 0:
			return nil, errors.New("split of white space takes no maxsplit here")
		case separator == nil:
			return listOf(strings.FieldsFunc(self, isPythonSpace)), nil
		case fromRight:
			return listOf(splitRight(self, separator.String(), most)), nil
		case most >= 0:
			return listOf(strings.SplitN(self, separator.String(), most+1)), nil
		}
		return listOf(strings.Split(self, separator.String())), nil
	}
}

func splitRight(s, separator string, most int) []string {
	parts := strings.Split(s, separator)
	if most < 0 || len(parts) <= most+1 {
		return parts
	}
	first := strings.Join(parts[:len(parts)-most], separator)
	return append([]string{first}, parts[len(parts)-most:]...)
}

func listOf(parts []string) list {
	l := make(list, len(parts))
	for i, p := range parts {
		l[i] = p
	}
	return l
}

var dictMethods = map[string]exec.Method[map[string]any]{
	"get": func(_ map[string]any, self *exec.Value, arguments *exec.VarArgs) (any, error) {
		if len(arguments.Args) < 1 || len(arguments.Args) > 2 {
			return nil, errors.New("get takes a key and a default")
		}
		for _, pair := range pairsOf(self) {
			if pair.Key.EqualValueTo(arguments.Args[0]) {
				return pair.Value.Interface(), nil
			}
		}
		if len(arguments.Args) == 2 {
			return arguments.Args[1].Interface(), nil
		}
		return none, nil
	},
	"items": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		return items(self), nil
	},
	"keys": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		return column(self, 0), nil
	},
	"values": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		return column(self, 1), nil
	},
}

// items returns a dict's items, each a list of key and value.
func items(dict *exec.Value) list {
	l := list{}
	for _, pair := range pairsOf(dict) {
		l = append(l, list{pair.Key, pair.Value})
	}
	return l
}

// sorted sorts items by their keys, without regard to case.
func sorted(items list) list {
	key := func(item any) string { return strings.ToLower(exec.ToValue(item.(list)[0]).String()) }
	slices.SortStableFunc(items, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	return items
}

// column returns the list of a dict's keys (0) or values (1).
func column(dict *exec.Value, n int) list {
	l := items(dict)
	for i, pair := range l {
		l[i] = pair.(list)[n]
	}
	return l
}
