package chat

import (
	"github.com/nikolalohinski/gonja/v2/exec"
)

// noneType is the type of none. It is a channel, which gonja treats like Python's none: it is
// false, has no items and equals itself only. nil is undefined in gonja.
type noneType chan struct{}

// none is closed, so that a loop over it ends.
var none = func() noneType {
	c := make(noneType)
	close(c)
	return c
}()

// String returns the text that Python prints.
func (noneType) String() string { return "None" }

func isNone(v *exec.Value) bool {
	_, is := v.Interface().(noneType)
	return is
}

// list is a list with negative indices from its end.
type list []any

// GetItem returns the item at an index; a negative one counts from the end.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// listed converts gonja's kinds of lists to list; it returns other values as they are.
func listed(v *exec.Value) *exec.Value {
	if _, is := v.Interface().(list); is || v.IsError() || !v.IsList() {
		return v
	}
	l := list{}
	v.Iterate(func(_, _ int, item, _ *exec.Value) bool {
		l = append(l, item)
		return true
	}, func() {})
	return exec.AsValue(l)
}

// orderedDict returns a dict of alternating keys and values.
func orderedDict(pairs ...any) *exec.Dict {
	d := exec.NewDict()
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.ToValue(pairs[i]), Value: exec.ToValue(pairs[i+1])})
	}
	return d
}

// pairsOf returns a dict's pairs in their order.
func pairsOf(v *exec.Value) (pairs []*exec.Pair) {
	for _, key := range v.Keys() {
		value, _ := v.GetItem(key.Interface())
		if d, ok := v.Interface().(*exec.Dict); ok {
			value = d.Get(key)
		}
		pairs = append(pairs, &exec.Pair{Key: key, Value: value})
	}
	return pairs
}
