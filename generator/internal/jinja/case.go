package jinja

import (
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// caseMapped returns s with each character replaced by a text that depends on its place.
func (s str) caseMapped(f func(all []rune, i int) string) str {
	var b builder
	all, i := []rune(s.text), 0
	s.runs(func(text string, data bool) {
		for range text {
			b.put(f(all, i), data)
			i++
		}
	})
	return b.markup(s.html)
}

// casing maps characters as Python does, which knows characters that become several.
type casing struct{ upperCase, lowerCase, titleCase, foldCase cases.Caser }

func newCasing() *casing {
	return &casing{
		cases.Upper(language.Und), cases.Lower(language.Und), cases.Title(language.Und, cases.NoLower), cases.Fold(),
	}
}

const asciiCase = 'a' - 'A'

func (c *casing) upper(all []rune, i int) string {
	r := all[i]
	switch {
	case r >= 'a' && r <= 'z':
		return string(r - asciiCase)
	case r < 0x80:
		return string(r)
	}
	return c.upperCase.String(string(r))
}

func (c *casing) lower(all []rune, i int) string {
	r := all[i]
	switch {
	case r >= 'A' && r <= 'Z':
		return string(r + asciiCase)
	case r < 0x80:
		return string(r)
	case r == 'Σ':
		return lowerSigma(all, i)
	}
	return c.lowerCase.String(string(r))
}

func (c *casing) title(all []rune, i int) string {
	if all[i] < 0x80 {
		return c.upper(all, i)
	}
	return c.titleCase.String(string(all[i]))
}

// lowerSigma is Python's handle_capital_sigma: a sigma at the end of a word has another form.
func lowerSigma(all []rune, i int) string {
	before := i - 1
	for before >= 0 && caseIgnorable(all[before]) {
		before--
	}
	after := i + 1
	for after < len(all) && caseIgnorable(all[after]) {
		after++
	}
	if before >= 0 && isCased(all[before]) && (after == len(all) || !isCased(all[after])) {
		return "ς"
	}
	return "σ"
}

func isCased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

func caseIgnorable(r rune) bool {
	switch r {
	case '\'', '.', ':', '^', '`', 0xa8, 0xad, 0xaf, 0xb4, 0xb7, 0xb8, '’', '‘', '․', '‧', '﹒', '．', '：':
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func (s str) upper() str { return s.caseMapped(newCasing().upper) }
func (s str) lower() str { return s.caseMapped(newCasing().lower) }

// capitalize is Python's str.capitalize.
func (s str) capitalize() str {
	c := newCasing()
	return s.caseMapped(func(all []rune, i int) string {
		if i == 0 {
			return c.title(all, i)
		}
		return c.lower(all, i)
	})
}

// titled is Python's str.title.
func (s str) titled() str {
	c := newCasing()
	return s.caseMapped(func(all []rune, i int) string {
		if i > 0 && isCased(all[i-1]) {
			return c.lower(all, i)
		}
		return c.title(all, i)
	})
}

// titleWords is the filter title: words begin after white space and some punctuation.
func (s str) titleWords() str {
	c := newCasing()
	begins := func(r rune) bool {
		switch r {
		case '-', '(', '{', '[', '<':
			return true
		}
		return isSpace(r)
	}
	start, end := 0, 0
	return s.caseMapped(func(all []rune, i int) string {
		if begins(all[i]) {
			start = i + 1
			return string(all[i])
		}
		if i == start {
			for end = i; end < len(all) && !begins(all[end]); {
				end++
			}
			return c.upper(all, i)
		}
		return c.lower(all[start+1:end], i-start-1) // Jinja2 maps the rest of a word alone
	})
}

func (s str) swapcase() str {
	c := newCasing()
	return s.caseMapped(func(all []rune, i int) string {
		switch r := all[i]; {
		case unicode.IsUpper(r):
			return c.lower(all, i)
		case unicode.IsLower(r):
			return c.upper(all, i)
		}
		return string(all[i])
	})
}

func (s str) casefold() str {
	c := newCasing()
	return s.mapped(func(r rune) string {
		if r < 0x80 {
			return c.lower([]rune{r}, 0)
		}
		return c.foldCase.String(string(r))
	})
}

// isUpper and isLower are Python's str.isupper and str.islower.
func (s str) isUpper() bool { return s.oneCase(unicode.IsUpper, unicode.IsLower) }
func (s str) isLower() bool { return s.oneCase(unicode.IsLower, unicode.IsUpper) }

func (s str) oneCase(is, other func(rune) bool) bool {
	found := false
	for _, r := range s.text {
		if other(r) || unicode.IsTitle(r) {
			return false
		}
		found = found || is(r)
	}
	return found
}

// isTitle is Python's str.istitle.
func (s str) isTitle() bool {
	cased, found := false, false
	for _, r := range s.text {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if cased {
				return false
			}
			cased, found = true, true
		case unicode.IsLower(r):
			if !cased {
				return false
			}
			cased, found = true, true
		default:
			cased = false
		}
	}
	return found
}
