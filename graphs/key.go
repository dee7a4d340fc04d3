// Package graphs keeps captured forward passes: it decides which graph serves a
// step, and which are captured or evicted next. It knows no model and no op; its
// user supplies a function that launches a pass.
//
// No step waits for a capture. [Pool.Acquire] answers at once from the graphs that
// exist. A missed shape becomes a capture request, and the [Roller] captures it in
// the background, within the budget.
package graphs

import "fmt"

// Class is a kind of pass. A graph of one class never serves a step of another.
type Class uint8

// The classes of passes.
const (
	DecodeClass Class = iota
	PrefillClass
	VerifyClass
	MixedClass
)

// Key is the shape of a captured pass: everything that its launches depend on.
// The rest (tokens, positions, lengths, block tables, sampling parameters, seeds)
// is read on the device at fixed addresses.
type Key struct {
	Class Class
	// Rows is the number of sequences of a decode or verify step, and that of generated rows, padding included, of a mixed
	// one. Prefill: 1 by convention, though a chunk may hold several sequences.
	Rows int32
	// Queries is the number of token rows of a sequence in a verify step, and that of the chunk's tokens in a prefill or
	// mixed one. Decode: 1.
	Queries int32
	Variant uint8 // 0, or one of those below
}

// Variants: a decode pass that prepares later ones, see [Key.Following]; a prefill pass that samples several rows, see
// [Key.OfSeveral].
const (
	following = 1 + iota
	ofSeveral
)

// Decode returns the key of a decode step of n sequences.
func Decode(n int) Key { return Key{Class: DecodeClass, Rows: int32(n), Queries: 1} }

// Prefill returns the key of a prefill step of n prompt tokens.
func Prefill(n int) Key { return Key{Class: PrefillClass, Rows: 1, Queries: int32(n)} }

// OfSeveral returns the key of a prefill step in which more than one prompt may end. Its pass has more rows to sample.
func (k Key) OfSeveral() Key {
	k.Variant = ofSeveral
	return k
}

// VerifyStep returns the key of a verify step of n sequences with so many rows each.
func VerifyStep(n, queries int) Key {
	return Key{Class: VerifyClass, Rows: int32(n), Queries: int32(queries)}
}

// Mixed returns the key of a mixed step of so many generated rows and prompt tokens.
func Mixed(generated, prompt int) Key {
	return Key{Class: MixedClass, Rows: int32(generated), Queries: int32(prompt)}
}

// Following returns the key of a decode step in which a draft model follows the model, so that it can guess later.
func (k Key) Following() Key {
	k.Variant = following
	return k
}

// Tokens returns the number of token rows of the pass.
func (k Key) Tokens() int {
	if k.Class == MixedClass {
		return int(k.Rows) + int(k.Queries)
	}
	return int(k.Rows) * int(k.Queries)
}

// HasPrompts reports whether the pass has prompt tokens. Their number is its size: padding comes after them.
func (k Key) HasPrompts() bool { return k.Class == PrefillClass || k.Class == MixedClass }

// String returns the shape as in "decode 8", "decode 8 followed", "prefill 64", "prefill 64 of several", "verify 2x8" or
// "mixed 16+208".
func (k Key) String() string {
	switch k.Class {
	case PrefillClass:
		if k.Variant == ofSeveral {
			return fmt.Sprintf("prefill %d of several", k.Queries)
		}
		return fmt.Sprintf("prefill %d", k.Queries)
	case VerifyClass:
		return fmt.Sprintf("verify %dx%d", k.Rows, k.Queries)
	case MixedClass:
		return fmt.Sprintf("mixed %d+%d", k.Rows, k.Queries)
	}
	if k.Variant == following {
		return fmt.Sprintf("decode %d followed", k.Rows)
	}
	return fmt.Sprintf("decode %d", k.Rows)
}

// family returns k without its size. Only keys of one family can cover each other. In a verify step the queries decide
// where the rows of a sequence are, and in a mixed step the generated rows where those of prompts begin, so they are no
// size.
func (k Key) family() Key {
	if k.HasPrompts() {
		k.Queries = 0
	} else {
		k.Rows = 0
	}
	return k
}

// wideRows is the token rows from which each further one takes its part of a pass's time. Passes of fewer read weights
// for most of it, whatever their rows.
const wideRows = 512

// wastes reports whether a step of o takes longer in a graph of k, padded, than op by op: launching takes a few percent
// of such a pass.
func (k Key) wastes(o Key) bool {
	return k.Tokens() > wideRows && 8*(k.Tokens()-o.Tokens()) > k.Tokens()
}

// covers reports whether a graph of k can run a step of o, padded.
func (k Key) covers(o Key) bool {
	return k.family() == o.family() && k.Rows >= o.Rows && k.Queries >= o.Queries
}
