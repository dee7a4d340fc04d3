package jinja

import "slices"

// builtin is a filter or a test. call gets the value and the parameters; a parameter that is
// not given is missing.
type builtin struct {
	params   []string
	required int // of params
	call     func(r *run, v value, p []value) value
	// free takes any arguments instead of params.
	free func(r *run, v value, a arguments) value
}

// apply applies the builtin to a value.
func (b *builtin) apply(r *run, v value, a arguments) value {
	if b.free != nil {
		return b.free(r, v, a)
	}
	return b.call(r, v, a.bind("the filter or test", b.required, b.params...))
}

// bind returns the values of a function's parameters, of which the first ones are required.
func (a *arguments) bind(function string, required int, params ...string) []value {
	if len(a.positional) > len(params) {
		fail("%s takes at most %d arguments, %d given", function, len(params), len(a.positional))
	}
	values := make([]value, len(params))
	copy(values, a.positional)
	for i := len(a.positional); i < len(params); i++ {
		values[i] = missing
	}
	for i, name := range a.names {
		at := slices.Index(params, name.text)
		if at < 0 {
			fail("%s takes no argument '%.100s'", function, name.text)
		}
		if !isMissing(values[at]) {
			fail("%s has two values for '%.100s'", function, name.text)
		}
		values[at] = a.named[i]
	}
	for i, name := range params[:required] {
		if isMissing(values[i]) {
			fail("%s needs the argument '%s'", function, name)
		}
	}
	return values
}

// or returns v, or an alternative if v is missing.
func or(v, alternative value) value {
	if isMissing(v) {
		return alternative
	}
	return v
}
