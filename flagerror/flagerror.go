// Package flagerror says in plain words what is wrong with a flag's value.
package flagerror

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Plain returns an error of parsing flags. One about a number, a time or a boolean, whose words are those of
// Go's functions, gets others that say what the flag takes.
func Plain(err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err
	}
	cause := errors.Unwrap(wrong)
	says := ofCause(cause, wrong.GetFlag().Value)
	if says == "" {
		return err
	}
	flag, _ := strings.CutSuffix(err.Error(), cause.Error())
	return errors.New(flag + says)
}

// ofCause returns the words for what a flag's value says of a text; empty: those are plain.
func ofCause(cause error, value pflag.Value) string {
	var number *strconv.NumError
	if errors.As(cause, &number) {
		_, list := value.(pflag.SliceValue)
		return ofNumber(number, list)
	}
	if strings.HasPrefix(cause.Error(), "time: ") { // package time has no type for it
		return "want a time with its unit, such as 500ms, 5s or 2m"
	}
	return ""
}

// Number returns the error of a function of package strconv in plain words.
func Number(err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err
	}
	return errors.New(ofNumber(number, false))
}

// ofNumber says what is wanted in place of a number, or of one of a list.
func ofNumber(number *strconv.NumError, list bool) string {
	part := strconv.Quote(number.Num)
	if errors.Is(number, strconv.ErrRange) {
		if strings.HasPrefix(number.Num, "-") {
			return part + " is too small"
		}
		return part + " is too large"
	}
	one, many := "a whole number", "whole numbers"
	switch number.Func {
	case "ParseBool":
		return "want true or false"
	case "ParseUint":
		one = "a whole number, 0 or more"
	case "ParseFloat":
		one, many = "a number", "numbers"
	}
	if !list {
		return "want " + one
	}
	return "want " + many + " with commas between them, and " + part + " is none"
}
